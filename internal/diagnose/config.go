package diagnose

// This file defines the settings of a diagnosis, and the rights that it uses.

import (
	"net"
	"strconv"
	"time"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	defaultTimeout = 5 * time.Second
	defaultSettle  = 5 * time.Second
)

// Config holds the settings of a diagnosis. Only Clients, Options and Entries are required.
type Config struct {
	Clients cluster.Clients

	Options webhookconf.Options // CABundle is ignored: the live one counts
	Entries []webhookconf.Entry // the entries that should be registered, including the canary's if it has one
	Owner   string              // the certificate Secret of this deployment, "namespace/name"; empty skips the check of the owner

	// Canary is the object for which the API server is made to call. The zero Canary sends nothing, and the path is
	// checked only from this process.
	Canary Canary

	// Verify returns nil if a client that trusts the bundle (PEM) accepts the serving certificate of this process. It
	// is nil in a process that serves nothing.
	Verify func(bundle []byte) error
	Listen string // address that this process listens on, host:port; empty if it does not listen

	// AsksClients means that this process accepts only callers with a client certificate. A connection that breaks
	// after the handshake then counts as a rejection.
	AsksClients bool

	// Versions returns the live versions that this process knows. nil skips the check. It must not block.
	Versions func() []VersionInfo

	// Calls describes which steps share a call of the API server. Run repeats it if Others is set.
	Calls []string

	// Others makes Run look for webhooks of other programs that reject the same objects. It lists every webhook
	// configuration of the cluster.
	Others bool

	// Subject is an object for which the webhook is unexpectedly not called; nil for none.
	Subject *Subject

	Timeout time.Duration // for each check; 0 means 5 s
	Settle  time.Duration // how long the API server may take to observe a new configuration; 0 means 5 s
}

func (c Config) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return defaultTimeout
}

func (c Config) settle() time.Duration {
	if c.Settle > 0 {
		return c.Settle
	}
	return defaultSettle
}

func (c Config) serviceMode() bool { return c.Options.Target.Service != "" }

// listenPort returns the port that this process listens on, or 0 if it does not listen.
func (c Config) listenPort() int32 {
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return int32(n)
}

// service returns the Service in the form that messages use.
func (c Config) service() string {
	return "Service " + c.Options.Target.Namespace + "/" + c.Options.Target.Service
}

// serverName returns the host that the serving certificate must be valid for.
func (c Config) serverName() string {
	t := c.Options.Target
	if t.Service != "" {
		return t.Service + "." + t.Namespace + ".svc"
	}
	return t.Host
}

// Rights returns the rights that a diagnosis uses. None is required: checks whose right is missing are skipped.
func (c Config) Rights() []Right {
	mutating, validating := rightOn(webhookconf.Mutating.Resource), rightOn(webhookconf.Validating.Resource)
	rights := []Right{mutating("list", ""), validating("list", ""), {Resource: "namespaces", Verb: "list"}}
	if ns := c.Canary.Namespace; ns != "" {
		rights = append(rights, Right{Resource: "configmaps", Verb: "create", Namespace: ns})
	}
	for _, hooks := range c.kinds() {
		rights = append(rights, rightOn(hooks.resource)("get", hooks.name))
	}
	if ns := c.Options.Namespace; ns != "" {
		rights = append(rights, Right{Resource: "namespaces", Verb: "get", Name: ns})
	}
	if c.serviceMode() {
		rights = append(rights, c.serviceRights()...)
	}
	return rights
}

func (c Config) serviceRights() []Right {
	t := c.Options.Target
	return []Right{
		{Resource: "services", Verb: "get", Namespace: t.Namespace, Name: t.Service},
		{Group: "discovery.k8s.io", Resource: "endpointslices", Verb: "list", Namespace: t.Namespace},
	}
}

func rightOn(resource string) func(verb, name string) Right {
	return func(verb, name string) Right {
		return Right{Group: "admissionregistration.k8s.io", Resource: resource, Verb: verb, Name: name}
	}
}
