package serving

// This file reads the CAs that certify clients, and follows their changes.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// ParseConfigMap parses "namespace/name" or "namespace/name/key". The default key is ca.crt.
func ParseConfigMap(text string) (name types.NamespacedName, key string, err error) {
	parts := append(strings.Split(text, "/"), "ca.crt")
	if len(parts) > 4 || len(parts) < 3 || slices.Contains(parts, "") {
		return name, "", errors.New("not of this form")
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, parts[2], nil
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
	text, failed, err := c.PEM, "PEM cannot be used", error(nil)
	switch {
	case len(c.PEM) > 0:
	case c.File != "":
		failed = fmt.Sprintf("File %s cannot be used; mount it, or name another", c.File)
		if text, err = ca.ReadFile(c.File); len(text) > ca.MaxFile {
			err = fmt.Errorf("it is larger than %d bytes", ca.MaxFile)
		}
	default:
		failed = fmt.Sprintf("ConfigMap %s cannot be used (needs get, list and watch on that ConfigMap)", c.ConfigMap)
		text, err = c.readConfigMap(ctx)
	}
	if err == nil {
		err = c.Clients.SetCAs(text)
	}
	if err != nil {
		return fmt.Errorf("eirinix: ManagerOptions.ClientCA.%s: %w", failed, err)
	}
	return nil
}

func (c *ClientCAs) readConfigMap(ctx context.Context) ([]byte, error) {
	found := c.Empty()
	if err := c.Objects.Get(ctx, found); err != nil {
		return nil, err
	}
	text, ok := found.Data[c.Key]
	if !ok {
		return nil, fmt.Errorf("it has no key %q", c.Key)
	}
	return []byte(text), nil
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
