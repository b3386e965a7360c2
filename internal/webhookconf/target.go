package webhookconf

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Target is where the API server calls: a Service where Service is set, else Host as a URL.
type Target struct {
	Service, Namespace string // Service mode
	Host               string // URL mode: a name or an IP address without brackets
	Port               int32
}

// String is the target as a user would write it.
func (t Target) String() string {
	if t.Service != "" {
		return fmt.Sprintf("Service %s/%s, port %d", t.Namespace, t.Service, t.Port)
	}
	return "https://" + net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
}

func (o Options) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: slices.Clone(o.CABundle)}
	if o.Target.Service != "" {
		c.Service = &admissionregistrationv1.ServiceReference{
			Name: o.Target.Service, Namespace: o.Target.Namespace,
			Path: new(path), Port: new(o.Target.Port),
		}
		return c
	}
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(o.Target.Host, strconv.Itoa(int(o.Target.Port))), Path: path}
	c.URL = new(u.String())
	return c
}
