package plan

// OutsideMark is the folder that the launcher makes within the session's group
// when it could not join it, so that nobody takes the group for the whole.
const OutsideMark = "outside"
