package serving

// This file keeps client CAs in sync with the file that they come from.

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
)

const (
	// filePoll is the interval at which a file is read. Comparing its content, instead of waiting for notifications,
	// handles a mounted ConfigMap's exchange of symbolic links, network file systems and renamed files alike.
	filePoll = 5 * time.Second

	// maxCAFile is the maximum size of a ConfigMap or Secret, in bytes.
	maxCAFile = 1 << 20
)

// ReadFile sets the CAs from a PEM file of at most 1 MiB, once. After an error the last good ones stay in effect.
func (c *Clients) ReadFile(path string) error {
	text, err := readCAFile(path)
	if err != nil {
		return err
	}
	if err := c.SetCAs(text); err != nil {
		return fmt.Errorf("file %s: %w", path, err)
	}
	return nil
}

// FollowFile keeps the CAs in sync with a PEM file until ctx ends. It reads the file at once and then every five
// seconds, and applies changes. While the file cannot be read or holds no CA certificate, the last good ones stay in
// effect. That is logged when it appears and when it changes, as is every change of the CAs. A caller that needs the
// first error can call ReadFile before.
func (c *Clients) FollowFile(ctx context.Context, path string, log logr.Logger) {
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	var lastError string
	for {
		before := c.current.Load()
		err := c.ReadFile(path)
		switch {
		case err == nil:
			lastError = ""
			if c.current.Load() != before {
				log.Info("client CAs read", "file", path)
			}
		case err.Error() != lastError:
			lastError = err.Error()
			log.Error(err, "the client CAs could not be read; the last good ones stay")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func readCAFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err // names the path
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxCAFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxCAFile {
		return nil, fmt.Errorf("file %s: larger than %d bytes", path, maxCAFile)
	}
	return text, nil
}
