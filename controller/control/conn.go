package control

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"

	"skc.dev/skc/api/lifecycle"
)

// conn is one connection that has shown the token.
type conn struct {
	server *Server
	ws     *websocket.Conn
	raw    net.Conn // below ws, for deadlines that ws does not have

	life context.Context // until the connection is over
	drop context.CancelFunc
	work context.Context // of requests: until that, or until the server stops

	// out holds frames for the writer; an empty one is the last.
	out chan []byte
	// slots has an element for each request in flight.
	slots chan struct{}
	// requests are those in flight, too: begun by the reader, awaited after it.
	requests sync.WaitGroup
}

func newConn(ctx context.Context, s *Server, ws *websocket.Conn, raw net.Conn) *conn {
	c := &conn{server: s, ws: ws, raw: raw, out: make(chan []byte, maxQueue), slots: make(chan struct{}, maxInFlight)}
	c.life, c.drop = context.WithCancel(context.WithoutCancel(ctx))
	c.work = ctx
	return c
}

// run serves the connection until it is over and nothing of it runs.
func (c *conn) run() {
	var cancel context.CancelFunc
	stopped := c.work.Done()
	c.work, cancel = context.WithCancel(c.work)
	var helpers sync.WaitGroup
	helpers.Go(c.write)
	helpers.Go(func() { c.keep(stopped) })

	if code, reason := c.read(); code != 0 {
		c.end(code, reason)
	}
	c.server.forget(c)
	c.drop()
	cancel()
	helpers.Wait()
	c.requests.Wait() // their context has ended
	_ = c.ws.CloseNow()
}

// end tells the peer why the connection closes. A peer that goes on sending, or
// says nothing, does not hold it open.
func (c *conn) end(code websocket.StatusCode, reason string) {
	_ = c.raw.SetDeadline(time.Now().Add(closeTime))
	_ = c.ws.Close(code, reason)
}

// read takes frames until the connection ends; code is 0 when there is nobody
// left to tell.
func (c *conn) read() (code websocket.StatusCode, reason string) {
	c.ws.SetReadLimit(-1) // the limit is ours: it closes with the text of the protocol
	for {
		kind, r, err := c.ws.Reader(c.life)
		if err != nil {
			return 0, ""
		}
		if kind != websocket.MessageText {
			return websocket.StatusUnsupportedData, "binary frames are not supported"
		}
		data, err := io.ReadAll(io.LimitReader(r, lifecycle.MaxFrameBytes+1))
		if err != nil {
			return 0, ""
		}
		if len(data) > lifecycle.MaxFrameBytes {
			return websocket.StatusMessageTooBig, lifecycle.MessageFrameTooLong
		}
		c.take(data)
	}
}

// take serves one frame; a request goes on by itself.
func (c *conn) take(data []byte) {
	f := lifecycle.ParseFrame(data)
	switch {
	case f.Verdict == lifecycle.Malformed:
	case f.Verdict == lifecycle.UnknownType || !c.server.known(f.Token):
		c.answer(lifecycle.Unauthorized(f.RequestID))
	case f.Verdict != lifecycle.Admitted:
		c.server.diagnose()
		a, _ := f.Answer()
		c.respond(a.RequestID, a)
	case f.Request.RequestID == "":
		c.answer(lifecycle.ErrorResponse{Reason: lifecycle.ReasonInvalidTarget, Message: lifecycle.MessageEmptyRequestID})
	default:
		c.begin(f.Request)
	}
}

// begin starts to serve a request, unless its id is taken, or the connection
// has enough to do. Once the server stops there is no answer: nothing was done,
// and the close says so.
func (c *conn) begin(r lifecycle.Request) {
	if c.work.Err() != nil {
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		c.answer(lifecycle.ErrorResponse{RequestID: r.RequestID, Reason: lifecycle.ReasonRateLimited, Message: messageBusy})
		return
	}
	if !c.server.claim(r.RequestID, c) {
		<-c.slots
		c.answer(lifecycle.ErrorResponse{RequestID: r.RequestID, Reason: lifecycle.ReasonDuplicateConflict, Message: lifecycle.MessageRequestIDInUse})
		return
	}
	c.requests.Go(func() {
		defer func() { <-c.slots }()
		response, err := c.submit(r)
		if err != nil {
			c.server.diagnose()
			response = lifecycle.NotProcessed(r.RequestID)
		}
		c.server.release(r.RequestID, c) // before the answer: who has it may use the id again
		c.respond(r.RequestID, response)
	})
}

// submit has the request served. A panic costs the request, not the controller.
func (c *conn) submit(r lifecycle.Request) (_ lifecycle.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	outcome, err := c.server.opts.Submitter.Submit(c.work, r)
	if err != nil {
		return nil, err
	}
	return lifecycle.Respond(r, outcome)
}

// respond sends the answer to a request to its sender; one that names no
// request goes to every connection.
func (c *conn) respond(requestID string, r lifecycle.Response) {
	frame, ok := c.frame(requestID, r)
	switch {
	case !ok:
	case requestID == "":
		c.server.everyone(frame)
	default:
		c.send(frame)
	}
}

// answer sends what the transport itself has to say, to who spoke.
func (c *conn) answer(r lifecycle.ErrorResponse) {
	if frame, ok := c.frame(r.RequestID, r); ok {
		c.send(frame)
	}
}

func (c *conn) frame(requestID string, r lifecycle.Response) ([]byte, bool) {
	frame, err := r.Frame()
	if err != nil {
		c.server.diagnose()
		frame, err = lifecycle.NotProcessed(requestID).Frame()
	}
	return frame, err == nil
}

// send queues a frame. It waits for a peer that does not read, and for nobody
// else; the writer ends that.
func (c *conn) send(frame []byte) {
	select {
	case c.out <- frame:
	case <-c.life.Done():
	}
}

// write writes what is queued, until the last frame or the end.
func (c *conn) write() {
	for {
		select {
		case <-c.life.Done():
			return
		case frame := <-c.out:
			if len(frame) == 0 {
				c.end(websocket.StatusGoingAway, "the controller stops")
				return
			}
			ctx, cancel := context.WithTimeout(c.life, c.server.patience)
			err := c.ws.Write(ctx, websocket.MessageText, frame)
			cancel()
			if err != nil {
				if c.life.Err() == nil {
					c.server.diagnose()
				}
				c.drop()
				return
			}
		}
	}
}

// keep finds out whether the peer is there, and closes in order when the server
// stops: after the requests in hand, for which their context has ended.
func (c *conn) keep(stopped <-chan struct{}) {
	ticker := c.server.opts.Clock.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-stopped:
			for range maxInFlight { // and none begins any more
				select {
				case c.slots <- struct{}{}:
				case <-c.life.Done():
				}
			}
			c.send(nil)
			return
		case <-ticker.C():
			ctx, cancel := context.WithTimeout(c.life, c.server.patience)
			err := c.ws.Ping(ctx)
			cancel()
			if err != nil {
				c.drop()
				return
			}
		}
	}
}
