// Package control is the loopback WebSocket by which programs on this machine
// bring lifecycle requests (specs: actors and transport). It proves that who
// speaks is a program that was given the token, reads frames, sees that each
// answer goes where its request came from, and bounds what anybody can make it
// keep. What a request means, and whether it was served before, is for its
// Submitter.
package control

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/effects/files"
)

// Submitter serves requests.
type Submitter interface {
	// Submit serves one delivery of a request and returns what became of it. It is
	// called once for each frame, so for a repeated request again, and for several
	// at a time. When ctx ends it returns soon; what was accepted goes on. An error
	// tells the caller nothing: it gets the generic answer.
	Submit(ctx context.Context, r lifecycle.Request) (lifecycle.Outcome, error)
}

// Limits. A program that keeps to the protocol meets none of them.
const (
	maxConnections = 32 // with a token
	maxInFlight    = 16 // requests of one connection without an answer
	maxStrangers   = 64 // connections that have not shown a token yet
	maxQueue       = 64 // frames that wait to be written to one connection
	maxDiagnostics = 10 // of a process
	tokenBytes     = 32

	headerTime = 5 * time.Second  // for the upgrade
	patience   = 10 * time.Second // for a peer to take one frame, and to answer a ping
	closeTime  = 2 * time.Second  // for the peer to close, too
	pingEvery  = 30 * time.Second
)

// messageBusy answers a request beyond maxInFlight; nothing was done for it.
const messageBusy = "too many requests wait for an answer on this connection"

// Options says where the control listens and what it needs.
type Options struct {
	// Address is a loopback IP address with a port; 0 is any free one.
	Address string
	// Owner is the ownerId in the discovery file: a name for this process.
	Owner string
	// Dir is the folder of the discovery file.
	Dir       string
	Files     *files.Layer
	Submitter Submitter
	Clock     clock.WithTicker
	Log       logr.Logger
}

// Server is the control of one controller.
type Server struct {
	opts     Options
	listener net.Listener
	token    string // in memory only
	record   Record
	patience time.Duration
	told     atomic.Int32 // diagnostics

	places chan struct{} // an element for each connection, taken before the upgrade

	mu        sync.Mutex
	stopping  bool
	abandoned bool // also drop what comes late
	conns     map[*conn]bool
	flights   map[string]*flight // by request id
	running   sync.WaitGroup     // of conns

	strangers strangers
}

// flight is the requests with one id that wait for an answer.
type flight struct {
	conn *conn
	n    int
}

// CheckAddress refuses an address that is not loopback, and any name: who
// answers for it decides where it leads.
func CheckAddress(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q is not IP:PORT", address)
	}
	if !a.Addr().IsLoopback() || a.Addr().Zone() != "" {
		return fmt.Errorf("address %s: only a loopback address such as 127.0.0.1:0 is allowed", address)
	}
	return nil
}

// Listen opens the port and makes the token. Serve follows.
func Listen(o Options) (*Server, error) {
	if err := CheckAddress(o.Address); err != nil {
		return nil, fmt.Errorf("lifecycle control: %w", err)
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("lifecycle control: %w", err)
	}
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails, by its contract
	s := &Server{
		opts: o, listener: l, token: base64.RawURLEncoding.EncodeToString(b),
		patience: patience, places: make(chan struct{}, maxConnections), conns: map[*conn]bool{}, flights: map[string]*flight{},
	}
	s.record = newRecord(l.Addr(), o.Owner, o.Clock.Now())
	return s, nil
}

// Close gives up a server that will not Serve.
func (s *Server) Close() error { return s.listener.Close() }

// URL is where clients find the server, without the token.
func (s *Server) URL() string { return s.record.URL }

// Token is what clients must show. It is for programs of this user only.
func (s *Server) Token() string { return s.token }

// TokenHandler tells URL and token, as {"url","token"}. Serve it only to who
// is proven to be the same user.
func (s *Server) TokenHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(map[string]string{"url": s.URL(), "token": s.token})
	})
}

// Serve publishes the discovery file and serves until ctx ends. Then it takes
// the file away, lets the requests in hand have their answers, closes all
// connections and returns when nothing of it is left.
func (s *Server) Serve(ctx context.Context) error {
	if err := s.publish(); err != nil {
		return errors.Join(err, s.listener.Close())
	}
	srv := &http.Server{
		Handler:                      s.handler(ctx),
		ReadTimeout:                  headerTime,
		WriteTimeout:                 headerTime,
		MaxHeaderBytes:               8 << 10,
		DisableGeneralOptionsHandler: true, // else "OPTIONS *" is answered by the library
		ConnState:                    s.strangers.watch,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, rawConn{}, c)
		},
		ErrorLog: log.New(io.Discard, "", 0), // it quotes what strangers send
	}
	srv.SetKeepAlivesEnabled(false)
	withdrawn := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		withdrawn <- s.withdraw()
		_ = srv.Close()
	})
	err := srv.Serve(s.listener)
	if stop() { // the listener failed by itself
		err = errors.Join(fmt.Errorf("lifecycle control: %w", err), s.withdraw(), srv.Close())
		s.abandon()
	} else {
		err = <-withdrawn
	}
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// abandon drops all connections.
func (s *Server) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping, s.abandoned = true, true
	for c := range s.conns {
		c.drop()
	}
}

// rawConn is the key under which the context of a request has its net.Conn.
type rawConn struct{}

// handler decides, before a byte of the protocol is spoken, who is a local
// program that was given the token. A web page can make a browser send almost
// anything here, under any name that its resolver maps to us; but a browser
// tells the page's Origin and the name it looked up.
func (s *Server) handler(ctx context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := s.judge(r); status != http.StatusOK {
			refuse(w, status)
			return
		}
		select {
		case s.places <- struct{}{}:
			defer func() { <-s.places }()
		default:
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		if !s.admit() {
			refuse(w, http.StatusServiceUnavailable)
			return
		}
		defer s.running.Done()
		ws, err := websocket.Accept(w, r, nil) // answers what is no upgrade itself
		if err != nil {
			return
		}
		raw, _ := r.Context().Value(rawConn{}).(net.Conn)
		c := newConn(ctx, s, ws, raw)
		s.enter(c)
		c.run()
	})
}

func refuse(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// judge is the status with which a request is refused, or OK.
func (s *Server) judge(r *http.Request) int {
	_, fromPage := r.Header["Origin"]
	query := r.URL.Query()
	switch {
	case r.Host != s.listener.Addr().String():
		return http.StatusMisdirectedRequest // by another name: rebinding, or a proxy
	case fromPage:
		return http.StatusForbidden
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed
	case r.URL.IsAbs() || r.URL.Path != "/" || r.URL.RawPath != "" || r.URL.Opaque != "":
		return http.StatusNotFound
	case len(query["token"]) != 1 || !s.known(query.Get("token")):
		return http.StatusUnauthorized
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// known compares a token in constant time.
func (s *Server) known(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// admit counts one connection more, unless the server stops. It comes before
// the upgrade: who was told that it is connected is also told why it ends.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.running.Add(1)
	}
	return !s.stopping
}

// enter takes in a connection that was admitted.
func (s *Server) enter(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
	if s.abandoned {
		c.drop()
	}
}

// forget makes the request ids of c free, though requests of it may still run:
// who lost a connection comes again with the same ids. No answer is for c now.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	for id, f := range s.flights {
		if f.conn == c {
			delete(s.flights, id)
		}
	}
}

// claim marks id as one that c waits for; false when another connection does.
func (s *Server) claim(id string, c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id]
	if f == nil {
		f = &flight{conn: c}
		s.flights[id] = f
	}
	if f.conn != c {
		return false
	}
	f.n++
	return true
}

// release takes one claim back.
func (s *Server) release(id string, c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id]
	if f == nil || f.conn != c { // c is forgotten, and somebody else may have come
		return
	}
	if f.n--; f.n == 0 {
		delete(s.flights, id)
	}
}

// everyone gives a frame to all connections that have room for it.
func (s *Server) everyone(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		select {
		case c.out <- frame:
		default: // who does not read must not hold up the others, and did not ask
		}
	}
}

// diagnose tells that something went wrong with a request: that, nothing of the
// request, and no more than ten times.
func (s *Server) diagnose() {
	if s.told.Add(1) <= maxDiagnostics {
		s.opts.Log.Info("a lifecycle request could not be processed")
	}
}

// strangers are the connections that have not shown a token, in the order in
// which they came. Too many of them cost the oldest: a program that means to
// speak has shown its token long before.
type strangers struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (s *strangers) watch(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns = append(s.conns, c)
		if len(s.conns) > maxStrangers {
			_ = s.conns[0].Close()
			s.conns = append(s.conns[:0], s.conns[1:]...)
		}
	case http.StateHijacked, http.StateClosed:
		for i, have := range s.conns {
			if have == c {
				s.conns = append(s.conns[:i], s.conns[i+1:]...)
				return
			}
		}
	}
}
