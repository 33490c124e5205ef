package launch

// maxString is 0: only the total is limited here.
const maxString = 0

// maxTotal is ARG_MAX.
func maxTotal() int { return 1 << 20 }
