package tmux

// SetRoom has the machine seem to have so many terminals and the server so many
// descriptors.
func (c *Client) SetRoom(ptys, maxPtys, fds, maxFDs int) {
	c.limits = func(int) (limits, error) { return limits{ptys, maxPtys, fds, maxFDs}, nil }
}

// ClientPID is the control client's process.
func (c *Client) ClientPID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return 0
	}
	return c.conn.cmd.Process.Pid
}
