package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"skc.dev/skc/api"
	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects"
)

// agents is what is known of all Sessions with an agent: who has which
// conversation, who waits for one, who uses which profile. It is made of the
// Sessions' statuses when it is first needed, and follows the passes from then
// on, so that no pass looks at all of them. Its zero value is ready for use.
type agents struct {
	mu      sync.Mutex
	loaded  bool
	holders map[v1alpha1.ConversationID]holder
	held    map[string]v1alpha1.ConversationID // by UID
	waiting map[v1alpha1.ConversationID]map[api.Key]bool
	users   map[string]map[api.Key]bool // by profile
	looking map[string]*looking         // by UID: running agents whose conversation is not known
	places  map[place]map[string]bool   // their UIDs
	told    map[string]int64            // by UID, the attempt for which somebody was told that it is unclear
}

// holder is the Session that has a conversation.
type holder struct {
	key api.Key
	uid string
}

// place is where agents of one profile tell of their conversations.
type place struct{ profile, dir string }

// looking is one running agent whose conversation is not known.
type looking struct {
	place
	attempt int64
	shared  bool // another ran there, of which the same was so
}

// claim makes id uid's, which then has no other any more, or returns who has it
// and keeps key in mind as one that waits. freed are those that waited for what
// uid had until now.
func (a *agents) claim(ctx context.Context, store Store, key api.Key, uid string, id v1alpha1.ConversationID) (other *api.Key, freed []api.Key, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, err := a.holder(ctx, store, id)
	if err != nil {
		return nil, nil, err
	}
	if h != nil && h.uid != uid {
		add(&a.waiting, id, key)
		return &h.key, nil, nil
	}
	if had, ok := a.held[uid]; ok && had != id {
		freed = a.release(uid)
	}
	a.take(holder{key, uid}, id)
	delete(a.waiting[id], key)
	return nil, freed, nil
}

// heldByOther returns who has id, if that is not uid.
func (a *agents) heldByOther(ctx context.Context, store Store, uid string, id v1alpha1.ConversationID) (*api.Key, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, err := a.holder(ctx, store, id)
	if err != nil || h == nil || h.uid == uid {
		return nil, err
	}
	return &h.key, nil
}

// holder is who has id, nil when nobody does. One that is gone, and whose end no
// pass has seen yet, has it no more. The caller holds a.mu.
func (a *agents) holder(ctx context.Context, store Store, id v1alpha1.ConversationID) (*holder, error) {
	if err := a.load(ctx, store); err != nil {
		return nil, err
	}
	h, ok := a.holders[id]
	if !ok {
		return nil, nil
	}
	s, err := store.Get(ctx, h.key)
	switch {
	case err == nil && string(s.UID) == h.uid:
		return &h, nil
	case err != nil && !errors.Is(err, effects.ErrNotFound):
		return nil, fmt.Errorf("get %s, which has conversation %s: %w", h.key, id, err)
	}
	delete(a.holders, id)
	delete(a.held, h.uid)
	return nil, nil
}

// load reads who has what, once. Of two that say they have one conversation,
// which only a damaged state can make, it is the one that is older.
func (a *agents) load(ctx context.Context, store Store) error {
	if a.loaded {
		return nil
	}
	all, err := store.List(ctx)
	if err != nil {
		return fmt.Errorf("list who has which conversation: %w", err)
	}
	slices.SortFunc(all, func(x, y *v1alpha1.Session) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
	})
	for _, s := range all {
		if c := s.Status.Conversation; c != nil {
			if _, taken := a.holders[c.ID]; !taken {
				a.take(holder{api.KeyOf(s), string(s.UID)}, c.ID)
			}
		}
	}
	a.loaded = true
	return nil
}

func (a *agents) take(h holder, id v1alpha1.ConversationID) {
	if a.holders == nil {
		a.holders, a.held = map[v1alpha1.ConversationID]holder{}, map[string]v1alpha1.ConversationID{}
	}
	a.holders[id], a.held[h.uid] = h, id
}

// release takes from uid the conversation that it has and returns who waits for it.
func (a *agents) release(uid string) []api.Key {
	id, ok := a.held[uid]
	if !ok {
		return nil
	}
	freed := sortedKeys(a.waiting[id])
	delete(a.waiting, id)
	delete(a.held, uid)
	delete(a.holders, id)
	return freed
}

// forget drops a Session that is gone and returns who waits for what it had.
func (a *agents) forget(key api.Key, uid string) []api.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, users := range a.users {
		delete(users, key)
	}
	a.leave(uid)
	delete(a.told, uid)
	return a.release(uid)
}

// use keeps in mind that a Session has asked for the profile.
func (a *agents) use(profile string, key api.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add(&a.users, profile, key)
}

// usersOf are the Sessions that have asked for the profile.
func (a *agents) usersOf(profile string) []api.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return sortedKeys(a.users[profile])
}

// begin notes that the conversation of uid's running program is looked for at p,
// and tells whether it may be mistaken for another's: whether, since that start,
// two ran there whose conversations were not known.
func (a *agents) begin(p place, uid string, attempt int64) (shared bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := (looking{p, attempt, false}); a.looking[uid] == nil || a.looking[uid].place != p || a.looking[uid].attempt != attempt {
		a.leave(uid)
		if a.looking == nil {
			a.looking = map[string]*looking{}
		}
		a.looking[uid] = &now
		add(&a.places, p, uid)
		for other := range a.places[p] {
			a.looking[other].shared = a.looking[other].shared || len(a.places[p]) > 1
		}
	}
	return a.looking[uid].shared
}

// shared tells of a program that has ended, or was never looked at, what begin
// would.
func (a *agents) shared(p place, uid string, attempt int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.looking[uid]
	alone := len(a.places[p]) == 0 || len(a.places[p]) == 1 && a.places[p][uid]
	return !alone || l != nil && l.place == p && l.attempt == attempt && l.shared
}

// found notes that uid's conversation is looked for no more, and tells whether it
// was.
func (a *agents) found(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, was := a.looking[uid]
	a.leave(uid)
	return was
}

func (a *agents) leave(uid string) {
	l := a.looking[uid]
	if l == nil {
		return
	}
	delete(a.looking, uid)
	if delete(a.places[l.place], uid); len(a.places[l.place]) == 0 {
		delete(a.places, l.place)
	}
}

// unclear tells whether nobody was told yet that uid's conversation is unclear
// since that start.
func (a *agents) unclear(uid string, attempt int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told[uid] == attempt {
		return false
	}
	if a.told == nil {
		a.told = map[string]int64{}
	}
	a.told[uid] = attempt
	return true
}

func add[K, V comparable](m *map[K]map[V]bool, k K, v V) {
	if *m == nil {
		*m = map[K]map[V]bool{}
	}
	if (*m)[k] == nil {
		(*m)[k] = map[V]bool{}
	}
	(*m)[k][v] = true
}

func sortedKeys(m map[api.Key]bool) []api.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b api.Key) int { return cmp.Compare(a.String(), b.String()) })
}
