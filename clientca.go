package eirinix

// This file configures client certificates: the CA that callers of the webhook must present a certificate of.

import (
	"errors"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// ClientCA is the source of the CA that certifies callers. Set exactly one field. A file or ConfigMap is read again
// when it changes, and the change also applies to open connections.
type ClientCA struct {
	PEM       []byte // CA certificates
	File      string // path of a PEM file
	ConfigMap string // "namespace/name" or "namespace/name/key"; the default key is ca.crt
}

const defaultClientCAKey = "ca.crt"

// isZero reports whether no ClientCA is set, so that every client may call.
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

// newCallers returns the verification of client certificates, or nil if every client may call. Its Follow method keeps
// the CAs up to date.
func (m *ExtensionManager) newCallers(rights *diagnose.Preflight, log logr.Logger) (*serving.ClientCAs, error) {
	o := m.GetManagerOptions()
	if o.ClientCA.isZero() {
		return nil, nil
	}
	c := &serving.ClientCAs{Clients: &serving.Clients{Names: o.ClientNames}, PEM: o.ClientCA.PEM, File: o.ClientCA.File, Log: log}
	namespace, name, key, err := o.ClientCA.configMap()
	if err != nil {
		return c, nil //nolint:nilerr // the CA does not come from a ConfigMap
	}
	config, err := m.ownConfig()
	if err != nil {
		return nil, err
	}
	c.ConfigMap, c.Key = types.NamespacedName{Namespace: namespace, Name: name}, key
	c.Objects, err = cluster.NewObjects(config, log, rights.Followed(c.Empty())...)
	return c, err
}
