package serving

import (
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// connectionLogEvery is how often a line about connections is worth its place: whoever reaches the port can cause
// as many as they like.
const connectionLogEvery = 10 * time.Second

// connectionLog is where net/http complains of connections, above all of handshakes that fail: an API server that
// does not trust our certificate shows up here as "bad certificate".
type connectionLog struct {
	log logr.Logger

	mu       sync.Mutex
	next     time.Time
	withheld int
}

// Write takes one line.
func (c *connectionLog) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.next) {
		c.withheld++
		return len(line), nil
	}
	const most = 500
	text := strings.ToValidUTF8(string(line[:min(len(line), most)]), "")
	c.log.Info("a connection failed", "because", strings.TrimSpace(text), "moreSinceLast", c.withheld)
	c.next, c.withheld = now.Add(connectionLogEvery), 0
	return len(line), nil
}
