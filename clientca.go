package eirinix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

// ClientCA is where the CA comes from that certifies who may call. Fill in one of the fields. What is read from a file
// or a ConfigMap is read again when it changes, and holds for open connections too.
type ClientCA struct {
	PEM       []byte // CA certificates
	File      string // path of a PEM file
	ConfigMap string // "namespace/name" or "namespace/name/key"; the key is ca.crt unless given
}

const (
	// pollClientCA is how often a ConfigMap with client CAs is read.
	pollClientCA = 10 * time.Second

	defaultClientCAKey = "ca.crt"
)

// isZero tells whether everybody may call.
func (c ClientCA) isZero() bool { return len(c.PEM) == 0 && c.File == "" && c.ConfigMap == "" }

func (c ClientCA) validate(bad func(format string, args ...any)) {
	given := 0
	for _, is := range []bool{len(c.PEM) > 0, c.File != "", c.ConfigMap != ""} {
		if is {
			given++
		}
	}
	if given > 1 {
		bad("ClientCA has more than one of PEM, File and ConfigMap; fill in one")
	}
	if c.ConfigMap != "" {
		if _, _, _, err := c.configMap(); err != nil {
			bad("ClientCA.ConfigMap is %q; give \"namespace/name\" or \"namespace/name/key\"", c.ConfigMap)
		}
	}
}

func (c ClientCA) configMap() (namespace, name, key string, err error) {
	parts := strings.Split(c.ConfigMap, "/")
	if len(parts) == 2 {
		parts = append(parts, defaultClientCAKey)
	}
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", errors.New("not of this form")
	}
	return parts[0], parts[1], parts[2], nil
}

// callers is who may call, and how that is kept up to date; nil when everybody may.
type callers struct {
	clients   *serving.Clients
	source    ClientCA
	clientset kubernetes.Interface
	log       logr.Logger
}

func (m *ExtensionManager) newCallers(log logr.Logger) (*callers, error) {
	o := m.GetManagerOptions()
	if o.ClientCA.isZero() {
		return nil, nil
	}
	clientset, err := m.clients()
	if err != nil {
		return nil, err
	}
	return &callers{
		clients: &serving.Clients{Names: o.ClientNames, Now: m.clock.Now}, source: o.ClientCA, clientset: clientset, log: log,
	}, nil
}

// read reads the CAs once. Without any nobody may call, so a start without them is an error.
func (c *callers) read(ctx context.Context) error {
	switch {
	case len(c.source.PEM) > 0:
		if err := c.clients.SetCAs(c.source.PEM); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.PEM cannot be used: %w", err)
		}
	case c.source.File != "":
		if err := c.clients.ReadFile(c.source.File); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.File cannot be used; mount it, or name another: %w", err)
		}
	default:
		if err := c.readConfigMap(ctx); err != nil {
			return fmt.Errorf("eirinix: ManagerOptions.ClientCA.ConfigMap %q cannot be used (needs get on that ConfigMap): %w", c.source.ConfigMap, err)
		}
	}
	return nil
}

func (c *callers) readConfigMap(ctx context.Context) error {
	namespace, name, key, err := c.source.configMap()
	if err != nil {
		return err
	}
	found, err := c.clientset.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	text, ok := found.Data[key]
	if !ok {
		return fmt.Errorf("it has no key %q", key)
	}
	return c.clients.SetCAs([]byte(text))
}

// follow takes over changes until ctx ends. What cannot be read leaves the last good CAs in force.
func (c *callers) follow(ctx context.Context) {
	if c.source.File != "" {
		c.clients.FollowFile(ctx, c.source.File, c.log)
		return
	}
	said := reminder{log: c.log}
	for c.source.ConfigMap != "" && pause(ctx, pollClientCA) == nil {
		if err := c.readConfigMap(ctx); err != nil && ctx.Err() == nil {
			said.say("the client CAs could not be read; the last good ones stay", err)
		}
	}
}
