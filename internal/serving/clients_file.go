package serving

// This file keeps client CAs as fresh as the file that they come from.

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
)

const (
	// filePoll is how often a file is looked at. By content, not by notification: that finds a mounted
	// ConfigMap's exchange of symbolic links, network file systems and renamed files alike.
	filePoll = 5 * time.Second

	// maxCAFile is what a ConfigMap or Secret can hold.
	maxCAFile = 1 << 20
)

// ReadFile sets the CAs from a PEM file of at most 1 MiB, once. After an error the last good ones stay.
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

// FollowFile keeps the CAs as they are in a PEM file until ctx ends: it looks at once, and then every five
// seconds, and takes over what has changed. While the file cannot be read or holds no CA certificate, the
// last good ones stay; that is logged when it appears and when it changes, as is every change of the CAs.
// ReadFile may be called before, to learn of an error.
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
