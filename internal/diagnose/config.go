package diagnose

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

// Config is the subject of a diagnosis. Only Clients, Options and Entries are needed.
type Config struct {
	Clients cluster.Clients

	Options webhookconf.Options // whose CABundle is not looked at: the live one counts
	Entries []webhookconf.Entry // that should be registered, the canary's among them if there is one
	Owner   string              // the certificate Secret of this deployment, "namespace/name"; empty does not ask

	// Canary is the object for which the API server is made to call. The zero Canary sends nothing, and the path is
	// looked at from this process alone.
	Canary Canary

	// Verify is nil if a client that trusts the bundle (PEM) accepts the certificate that is served here. Leave it
	// out where nothing is served.
	Verify func(bundle []byte) error
	Listen string // where this process listens, host:port; empty where it does not

	// AsksClients means that this process accepts only callers with a client certificate. A connection that breaks
	// after the handshake is then taken for a refusal.
	AsksClients bool

	// Versions gives the versions that are alive, as this process knows them; nil does not look. It must not wait.
	Versions func() []VersionInfo

	// Calls says which steps share a call of the API server. Run repeats it where Others is set.
	Calls []string

	// Others makes Run look for webhooks of other programs that refuse the same objects. It lists every webhook
	// configuration of the cluster.
	Others bool

	// Subject is an object for which the webhook is not called, to the surprise of its owner; nil for none.
	Subject *Subject

	Timeout time.Duration // of each look; 0 means 5 s
	Settle  time.Duration // how long the API server may take to notice a new configuration; 0 means 5 s
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

// listenPort is the port on which this process listens, 0 if it does not.
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

// service is the Service as messages name it.
func (c Config) service() string {
	return "Service " + c.Options.Target.Namespace + "/" + c.Options.Target.Service
}

// serverName is the host that the serving certificate must be for.
func (c Config) serverName() string {
	t := c.Options.Target
	if t.Service != "" {
		return t.Service + "." + t.Namespace + ".svc"
	}
	return t.Host
}

// Rights are those that a diagnosis makes use of. None of them is needed: it leaves out the looks that it may not take.
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
