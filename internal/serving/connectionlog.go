package serving

// This file logs connections that fail.

import (
	"strings"

	"github.com/go-logr/logr"
)

// connectionLog receives net/http's messages about connections, above all about failed handshakes. An API server that
// does not trust our certificate appears here as "bad certificate".
type connectionLog struct {
	log logr.Logger
	rarely
}

// Write logs one line, unless another was logged shortly before.
func (c *connectionLog) Write(line []byte) (int, error) {
	if withheld, ok := c.pass(); ok {
		const most = 500
		text := strings.ToValidUTF8(string(line[:min(len(line), most)]), "")
		c.log.Info("a connection failed", "reason", strings.TrimSpace(text), "moreSinceLast", withheld)
	}
	return len(line), nil
}
