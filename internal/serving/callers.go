package serving

// This file reads the CAs that certify clients, and follows their changes.

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// Callers keeps Clients up to date from one of PEM, File and ConfigMap. Errors name the option of the Manager.
type Callers struct {
	Clients   *Clients
	PEM       []byte
	File      string
	ConfigMap types.NamespacedName
	Key       string           // of the ConfigMap's data
	Objects   *cluster.Objects // follow the ConfigMap
	Log       logr.Logger
}

// Empty returns the ConfigMap before its first read: only namespace and name are set.
func (c *Callers) Empty() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ConfigMap.Namespace, Name: c.ConfigMap.Name}}
}

// Read reads the CAs once. Without any, no client is allowed, so a start without them is an error. If they come from a
// ConfigMap, Follow must be running.
func (c *Callers) Read(ctx context.Context) error {
	switch {
	case len(c.PEM) > 0:
		if err := c.Clients.SetCAs(c.PEM); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.PEM cannot be used: %w", err)
		}
	case c.File != "":
		if err := c.Clients.ReadFile(c.File); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.File cannot be used; mount it, or name another: %w", err)
		}
	default:
		if err := c.Objects.Seen(ctx); err != nil {
			return err
		}
		if err := c.readConfigMap(ctx); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.ConfigMap %s cannot be used (needs get, list and watch on that ConfigMap): %w", c.ConfigMap, err)
		}
	}
	return nil
}

func (c *Callers) readConfigMap(ctx context.Context) error {
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

// Follow applies changes until ctx ends. While the CAs cannot be read, the last good ones stay in effect.
func (c *Callers) Follow(ctx context.Context) {
	switch {
	case c.File != "":
		c.Clients.FollowFile(ctx, c.File, c.Log)
	case c.Objects != nil:
		c.Objects.Notify(func() {
			if err := c.readConfigMap(ctx); err != nil && ctx.Err() == nil {
				c.Log.Info("the client CAs could not be read; the last good ones stay", "reason", err.Error())
			}
		})
		c.Objects.Run(ctx)
	}
}
