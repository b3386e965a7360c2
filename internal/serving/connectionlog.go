package serving

import (
	"strings"

	"github.com/go-logr/logr"
)

// connectionLog is where net/http complains of connections, above all of handshakes that fail: an API server that
// does not trust our certificate shows up here as "bad certificate".
type connectionLog struct {
	log logr.Logger
	rarely
}

// Write takes one line.
func (c *connectionLog) Write(line []byte) (int, error) {
	if withheld, ok := c.pass(); ok {
		const most = 500
		text := strings.ToValidUTF8(string(line[:min(len(line), most)]), "")
		c.log.Info("a connection failed", "reason", strings.TrimSpace(text), "moreSinceLast", withheld)
	}
	return len(line), nil
}
