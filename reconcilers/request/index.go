package request

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skc.dev/skc/api"
	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/api/v1alpha1"
)

// index finds requests by what they say. All in it follows from the objects, but
// for what was reserved by a delivery whose object is on its way. Its zero value
// is empty; its methods may be called at the same time.
type index struct {
	mu     sync.Mutex
	loaded bool

	groups  map[group]map[api.Key]member
	of      map[api.Key]group
	hits    map[string][]hit // by chat
	arrived map[api.Key]time.Time
	seen    map[api.Key]time.Time
	rows    map[types.UID]map[lifecycle.Event]bool

	// holders are the requests under way that may have touched a Session, by it.
	holders map[api.Key]map[api.Key]bool
	holds   map[api.Key]api.Key

	waiting map[api.Key]map[api.Key]bool // requests, by what they wait for
	waits   map[api.Key][]api.Key
	watches map[group]chan struct{}

	sessions sessionIndex
	changing deliveries
}

// group are the requests of one key.
type group struct{ namespace, source, key string }

type member struct {
	created time.Time
	state   v1alpha1.RequestState // of an entry of its own
	judged  bool
}

// hit is one create that counts for the limit of its chat.
type hit struct {
	at time.Time
	by api.Key // empty when the request was refused after it
}

func groupOf(rq *v1alpha1.SessionRequest) group {
	s := &rq.Spec
	if rq.Status.Request != nil {
		s = rq.Status.Request
	}
	return group{rq.Namespace, s.Source, s.Key}
}

// load fills the index by list; only the first call that succeeds does anything.
func (x *index) load(list func() ([]*v1alpha1.SessionRequest, error)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loaded {
		return nil
	}
	all, err := list()
	if err != nil {
		return err
	}
	x.groups, x.of, x.hits = map[group]map[api.Key]member{}, map[api.Key]group{}, map[string][]hit{}
	x.seen, x.rows = map[api.Key]time.Time{}, map[types.UID]map[lifecycle.Event]bool{}
	x.arrived = map[api.Key]time.Time{}
	x.holders, x.holds = map[api.Key]map[api.Key]bool{}, map[api.Key]api.Key{}
	for _, rq := range all {
		x.put(rq)
	}
	x.loaded = true
	return nil
}

// remember takes in how the object is now. It returns the others of its group
// when its own state is news to them.
func (x *index) remember(rq *v1alpha1.SessionRequest) (others []api.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.put(rq)
}

func (x *index) put(rq *v1alpha1.SessionRequest) (others []api.Key) {
	key, g := api.KeyOf(rq), groupOf(rq)
	if old, ok := x.of[key]; ok && old != g {
		x.drop(key)
	}
	m := member{created: rq.CreationTimestamp.Time, judged: rq.Status.State != "" || refused(rq) || rq.DeletionTimestamp != nil}
	if rq.Status.DuplicateOf == "" {
		m.state = rq.Status.State
	}
	if x.groups[g] == nil {
		x.groups[g] = map[api.Key]member{}
	}
	if was := x.groups[g][key]; was.state != m.state || was.judged != m.judged {
		for k := range x.groups[g] {
			if k != key {
				others = append(others, k)
			}
		}
	}
	x.groups[g][key], x.of[key] = m, g
	if s := rq.Status.Request; s != nil && s.Requester != nil && rq.Status.CountedAt != nil && m.state != "" {
		x.count(s.Requester.ChatID, key, rq.Status.CountedAt.Time)
	} else if q := rq.Spec.Requester; s == nil && q != nil && rq.Status.CountedAt != nil {
		x.count(q.ChatID, key, rq.Status.CountedAt.Time)
	}
	if m.state != v1alpha1.RequestInProgress {
		delete(x.seen, key)
		delete(x.rows, rq.UID)
		x.wait(key)
	}
	if m.judged {
		delete(x.arrived, key)
	}
	x.letGo(key)
	if st := &rq.Status; m.state == v1alpha1.RequestInProgress && st.Step != "" && st.Session != nil {
		session := sessionKey(st.Session.Namespace, st.Session.Name)
		if x.holders[session] == nil {
			x.holders[session] = map[api.Key]bool{}
		}
		x.holders[session][key], x.holds[key] = true, session
	}
	x.tell(g)
	return others
}

func (x *index) letGo(key api.Key) {
	session, ok := x.holds[key]
	if !ok {
		return
	}
	delete(x.holds, key)
	delete(x.holders[session], key)
	if len(x.holders[session]) == 0 {
		delete(x.holders, session)
	}
}

// held tells whether another request is under way with one of the Sessions.
func (x *index) held(request api.Key, sessions ...api.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range sessions {
		for k := range x.holders[s] {
			if k != request {
				return true
			}
		}
	}
	return false
}

// forget drops an object that is gone, and returns the others of its group.
func (x *index) forget(key api.Key) (others []api.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g, ok := x.of[key]
	x.drop(key)
	if ok {
		for k := range x.groups[g] {
			others = append(others, k)
		}
	}
	delete(x.seen, key)
	delete(x.arrived, key)
	x.letGo(key)
	x.wait(key)
	for _, hits := range x.hits { // it counts on, and for no other object of that name
		for i := range hits {
			if hits[i].by == key {
				hits[i].by = api.Key{}
			}
		}
	}
	return others
}

func (x *index) drop(key api.Key) {
	g, ok := x.of[key]
	if !ok {
		return
	}
	delete(x.of, key)
	delete(x.groups[g], key)
	if len(x.groups[g]) == 0 {
		delete(x.groups, g)
	}
	x.tell(g)
}

// holder is the object that has the entry of the group; elder, without one, the
// object that is judged before key.
func (x *index) holder(g group, key api.Key) (holder, elder *api.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	own := x.groups[g][key]
	for k, m := range x.groups[g] {
		switch {
		case m.state != "":
			return &k, nil
		case m.judged || k == key:
		case m.created.Before(own.created), m.created.Equal(own.created) && k.Name < key.Name:
			elder = &k
		}
	}
	return nil, elder
}

// watch is closed at the next change of an object of the group.
func (x *index) watch(g group) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.watches == nil {
		x.watches = map[group]chan struct{}{}
	}
	if x.watches[g] == nil {
		x.watches[g] = make(chan struct{})
	}
	return x.watches[g]
}

func (x *index) tell(g group) {
	if c := x.watches[g]; c != nil {
		close(c)
		delete(x.watches, g)
	}
}

// await has the request looked at when one of those objects changes, instead of
// those that it waited for before.
func (x *index) await(request api.Key, on ...api.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wait(request, on...)
}

func (x *index) wait(request api.Key, on ...api.Key) {
	for _, k := range x.waits[request] {
		delete(x.waiting[k], request)
		if len(x.waiting[k]) == 0 {
			delete(x.waiting, k)
		}
	}
	delete(x.waits, request)
	if len(on) == 0 {
		return
	}
	if x.waits == nil {
		x.waits, x.waiting = map[api.Key][]api.Key{}, map[api.Key]map[api.Key]bool{}
	}
	x.waits[request] = on
	for _, k := range on {
		if x.waiting[k] == nil {
			x.waiting[k] = map[api.Key]bool{}
		}
		x.waiting[k][request] = true
	}
}

func (x *index) waitingFor(key api.Key) (requests []api.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k := range x.waiting[key] {
		requests = append(requests, k)
	}
	return requests
}

// firstSeen is when this controller first saw the request in progress.
func (x *index) firstSeen(key api.Key, now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.seen[key]; !ok {
		x.seen[key] = now
	}
	return x.seen[key]
}

// arrive keeps when a request arrived whose object is on its way.
func (x *index) arrive(key api.Key, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.arrived[key] = at
}

func (x *index) arrival(key api.Key, now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, ok := x.arrived[key]; ok {
		return at
	}
	return now
}

// written tells whether this controller wrote that audit row of the request.
func (x *index) written(uid types.UID, e lifecycle.Event) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rows[uid][e]
}

func (x *index) wrote(uid types.UID, e lifecycle.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rows[uid] == nil {
		x.rows[uid] = map[lifecycle.Event]bool{}
	}
	x.rows[uid][e] = true
}

// reserve counts a create for the chat's limit, once for each object.
func (x *index) reserve(l lifecycle.RateLimit, chat string, by api.Key, now time.Time) (at time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var times []time.Time
	for _, h := range x.hits[chat] {
		if h.by == by {
			return h.at, true
		}
		times = append(times, h.at)
	}
	if _, ok := l.Allow(times, now); !ok {
		return now, false
	}
	var kept []hit
	for _, h := range x.hits[chat] {
		if now.Sub(h.at) < l.Window {
			kept = append(kept, h)
		}
	}
	x.hits[chat] = append(kept, hit{now, by})
	return now, true
}

// spend keeps the count of a request that was refused after all, so that the
// next of its key counts too.
func (x *index) spend(chat string, by api.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, h := range x.hits[chat] {
		if h.by == by {
			x.hits[chat][i].by = api.Key{}
		}
	}
}

func (x *index) count(chat string, by api.Key, at time.Time) {
	for _, h := range x.hits[chat] {
		if h.by == by || h.at.Equal(at) && h.by == (api.Key{}) {
			return
		}
	}
	x.hits[chat] = append(x.hits[chat], hit{at, by})
}
