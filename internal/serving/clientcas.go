package serving

// This file reads the CAs that certify clients, and follows their changes.

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// filePoll is the interval at which a file is read. Comparing its content, instead of waiting for notifications,
// handles a mounted ConfigMap's exchange of symbolic links, network file systems and renamed files alike.
const filePoll = 5 * time.Second

// ClientCAs keeps Clients up to date from one of PEM, File and ConfigMap. Errors name the option of the Manager.
type ClientCAs struct {
	Clients   *Clients
	PEM       []byte
	File      string // of at most 1 MiB
	ConfigMap types.NamespacedName
	Key       string           // of the ConfigMap's data
	Objects   *cluster.Objects // follow the ConfigMap
	Log       logr.Logger
}

// Empty returns the ConfigMap before its first read: only namespace and name are set.
func (c *ClientCAs) Empty() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ConfigMap.Namespace, Name: c.ConfigMap.Name}}
}

// Read reads the CAs once. Without any, no client is allowed, so a start without them is an error. If they come from a
// ConfigMap, Follow must be running.
func (c *ClientCAs) Read(ctx context.Context) error {
	if c.Objects != nil {
		if err := c.Objects.Seen(ctx); err != nil {
			return err
		}
	}
	return c.read(ctx)
}

// read sets the CAs. After an error the last good ones stay in effect.
func (c *ClientCAs) read(ctx context.Context) error {
	switch {
	case len(c.PEM) > 0:
		if err := c.Clients.SetCAs(c.PEM); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.PEM cannot be used: %w", err)
		}
	case c.File != "":
		if err := c.readFile(); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.File %s cannot be used; mount it, or name another: %w", c.File, err)
		}
	default:
		if err := c.readConfigMap(ctx); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.ConfigMap %s cannot be used (needs get, list and watch on that ConfigMap): %w", c.ConfigMap, err)
		}
	}
	return nil
}

func (c *ClientCAs) readFile() error {
	text, err := ca.ReadFile(c.File)
	if err != nil {
		return err
	}
	if len(text) > ca.MaxFile {
		return fmt.Errorf("it is larger than %d bytes", ca.MaxFile)
	}
	return c.Clients.SetCAs(text)
}

func (c *ClientCAs) readConfigMap(ctx context.Context) error {
	found := c.Empty()
	if err := c.Objects.Get(ctx, found); err != nil {
		return err
	}
	text, ok := found.Data[c.Key]
	if !ok {
		return fmt.Errorf("it has no key %q", c.Key)
	}
	return c.Clients.SetCAs([]byte(text))
}

// Follow applies changes until ctx ends: those of a file within five seconds. It logs each change. It also logs when the
// CAs cannot be read, while the last good ones stay in effect.
func (c *ClientCAs) Follow(ctx context.Context) {
	var failures lograte.Limiter
	read := func() {
		const failed = "the client CAs could not be read; the last good ones stay"
		before := c.Clients.current.Load()
		switch err := c.read(ctx); {
		case err != nil && ctx.Err() == nil:
			failures.Info(c.Log, failed, err.Error())
		case err == nil:
			failures.Forget(failed)
			if c.Clients.current.Load() != before {
				c.Log.Info("client CAs read")
			}
		}
	}
	switch {
	case c.File != "":
		for ctx.Err() == nil {
			read()
			_ = wait.Sleep(ctx, filePoll)
		}
	case c.Objects != nil:
		c.Objects.Notify(read)
		c.Objects.Run(ctx)
	}
}
