package serving

import (
	"net"
	"time"
)

// SetIdleTimeout is for specs that cannot wait for the real one. Call it before Start.
func (s *Server) SetIdleTimeout(d time.Duration) { s.idle = d }

// SetMostConnections is for specs that open only a few. Call it before Start.
func (s *Server) SetMostConnections(n int) { s.most = n }

// AdmitConnections takes connections in, of which that many may be open.
func AdmitConnections(most int) func(net.Conn) error {
	c := &connections{most: most}
	return c.admit
}

// MaxDecisions and RefusalLife bound the remembered decisions of Clients.
const (
	MaxDecisions = maxDecisions
	RefusalLife  = refusalLife
)

// Remembered is how many decisions of each kind are remembered under the current CAs.
func (c *Clients) Remembered() (accepted, refused int) {
	seen := &c.current.Load().seen
	if known := seen.accepted.Load(); known != nil {
		accepted = len(*known)
	}
	if known := seen.refused.Load(); known != nil {
		refused = len(*known)
	}
	return accepted, refused
}
