package eirinix

// This file validates the options and everything that was added.

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/serving"
)

// Validate checks the options and everything that was added. It returns all errors, joined by errors.Join, each with
// its remedy. It touches neither the network nor files, and does not compile Settings.Conditions.
func (m *ExtensionManager) Validate() error {
	hosted := m.validateHosted()
	m.mu.Lock()
	defer m.mu.Unlock()
	// A program that only watches or reconciles is never called, and needs no address.
	called := m.serves() || len(m.watchers)+len(m.reconcilers) == 0
	return m.setup.validate(called, hosted)
}

// validate returns all errors in the options and in what was added, with those of hosted in between.
func (s setup) validate(needsHost bool, hosted error) error {
	return errors.Join(s.options.validate(needsHost), hosted, errors.Join(s.addErrors...), s.check())
}

// validate returns all errors in the options, each with its remedy. needsHost is false for programs that only watch or
// reconcile, because those are never called.
func (o ManagerOptions) validate(needsHost bool) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions."+format, args...))
	}
	badIf := func(wrong bool, format string, args ...any) {
		if wrong {
			bad(format, args...)
		}
	}
	checkName := func(option, value string, check func(string) []string) {
		if problems := check(value); value != "" && len(problems) > 0 {
			rule, _, _ := strings.Cut(problems[0], " (e.g.") // the regular expression of the rule follows
			bad("%s is %q: %s", option, value, rule)
		}
	}
	checkName("Namespace", o.Namespace, validation.IsDNS1123Label)
	checkName("WebhookNamespace", o.WebhookNamespace, validation.IsDNS1123Label)
	checkName("ServiceName", o.ServiceName, validation.IsDNS1035Label)
	checkName("Domain", o.Domain, validation.IsDNS1123Subdomain)
	checkName("OperatorFingerprint", o.OperatorFingerprint, validation.IsDNS1123Label)
	if o.SetupCertificateName != certificateName(o.OperatorFingerprint) {
		checkName("SetupCertificateName", o.SetupCertificateName, validation.IsDNS1123Subdomain)
	}

	badIf(o.ServiceName != "" && o.WebhookNamespace == "",
		"ServiceName is %q but WebhookNamespace is empty, and this process runs in no pod whose namespace it could be; set it to that Service's namespace", o.ServiceName)
	o.validateHost(needsHost, bad)
	if o.Port < 0 || o.Port > 65535 {
		bad("Port is %d; give a port from 1 to 65535, or 0 for %d", o.Port, defaultPort)
	} else if host, port, err := o.listen(); err != nil {
		bad("ListenAddress is %q: %w; give host:port, such as \"0.0.0.0:9443\", \"[::1]:9443\" or \":0\"", o.ListenAddress, err)
	} else if listen := net.JoinHostPort(host, strconv.Itoa(port)); needsHost {
		for _, other := range []struct{ option, address string }{{"MetricsBindAddress", o.MetricsBindAddress}, {"HealthProbeBindAddress", o.HealthProbeBindAddress}} {
			badIf(serving.Collide(listen, other.address), "%s has port %d, on which webhooks are served; give it another", other.option, port)
		}
	}
	if p := o.FailurePolicy; p != nil && *p != admissionregistrationv1.Fail && *p != admissionregistrationv1.Ignore {
		bad("FailurePolicy is %q; it must be Fail or Ignore", *p)
	}
	badIf(o.Logger != nil && o.Logr.GetSink() != nil, "Logger and Logr are both set; keep one of them")
	if problems := validation.IsDNS1123Subdomain(o.ModesConfigMap); o.ModesConfigMap != "" && len(problems) > 0 {
		bad("ModesConfigMap is %q; give the name of a ConfigMap: %s", o.ModesConfigMap, problems[0])
	}
	badIf(o.KubeConfig != "" && o.RestConfig != nil, "KubeConfig is %q and RestConfig is set too; give one of them", o.KubeConfig)
	badIf(o.Context != nil && *o.Context == nil, "Context points at a nil context; leave it out or point it at a context")
	badIf(o.MaxRequestBytes < 0, "MaxRequestBytes is %d; give a number of bytes, or 0 for %d", o.MaxRequestBytes, defaultMaxRequestBytes)
	o.ClientCA.validate(bad)
	o.validateSource(bad)
	if err := ca.KeyAlgorithm(o.KeyAlgorithm).Validate(); err != nil {
		bad("KeyAlgorithm: %v", err)
	}
	badIf(o.CALifetime < 0 || o.lifetimes.Leaf < 0 || o.lifetimes.Retain < 0, "CALifetime, or a lifetime of a test, is negative (%s, %s, %s); give positive ones, or 0 for the defaults", o.CALifetime, o.lifetimes.Leaf, o.lifetimes.Retain)
	if least := max(2*o.retain(), o.leafLifetime()); o.CALifetime >= 0 && o.caLifetime() <= least {
		bad("CALifetime is %s, so that a CA would end while the one before it is still trusted, or a certificate that it signed is valid; give more than %s", o.caLifetime(), least)
	}
	return errors.Join(errs...)
}

func (o ManagerOptions) validateHost(needed bool, bad func(string, ...any)) {
	host := o.host()
	if host == "" {
		if needed && !o.serviceMode() {
			bad("Host is empty; set it to the name or IP address under which the API server reaches this program, or set ServiceName and WebhookNamespace")
		}
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() && !o.serviceMode() {
			bad("Host is %q, which no client can call; set it to the name or IP address under which the API server reaches this program (and ListenAddress to %q), or set ServiceName and WebhookNamespace", o.Host, net.JoinHostPort(host, strconv.Itoa(int(o.port()))))
		}
		return
	}
	// A name with a trailing dot can be resolved, but a certificate cannot hold it.
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(host)); len(problems) > 0 {
		bad("Host is %q; give a DNS name or an IP address alone, without scheme or port: %s", o.Host, problems[0])
	}
}
