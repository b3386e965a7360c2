package ca

// This file signs serving certificates for the hosts that a user configures, and cross-signs the certificate of one
// authority with the key of another.

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// SignServing creates a fresh key and a serving certificate for the hosts. The key is ECDSA P-256 unless WithKey
// chooses another algorithm, regardless of the authority's own. Hosts are DNS names, IP addresses, and bracketed or
// zoned IPv6 addresses, see ParseHosts.
//
// The certificate is valid from an hour before now (less if lifetime is under ten hours) until lifetime after now, but
// never outside the authority's own validity. With ServerTime that holds by both clocks. The chain to send is the
// certificate and a.Chain.
//
// A certificate is only returned once it verifies against the authority for every host. Otherwise the error states
// which constraint of the authority forbids it.
func (a *Authority) SignServing(hosts []string, lifetime time.Duration, now time.Time, opts ...Option) (*tls.Certificate, error) {
	if err := a.Usable(now, opts...); err != nil {
		return nil, err
	}
	names, err := ParseHosts(hosts)
	if err != nil {
		return nil, err
	}
	if lifetime < time.Second {
		return nil, fmt.Errorf("the lifetime of a serving certificate must be at least one second, not %s", lifetime)
	}
	o := optionsOf(opts)
	key, err := newKey("serving", o.key)
	if err != nil {
		return nil, err
	}
	from, until := o.span(now, lifetime)
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fitCommonName(names.All()[0])},
		DNSNames:              names.DNS,
		IPAddresses:           names.IPs,
		NotBefore:             later(from, a.Certificate.NotBefore),
		NotAfter:              earlier(until, a.Certificate.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	name := fmt.Sprintf("a serving certificate for %v", names.All())
	leaf, err := issue(name, template, a.Certificate, key.Public(), a.PrivateKey)
	if err != nil {
		return nil, err
	}
	if err := a.issued(leaf, names, Moment(a.Certificate, now, opts...)); err != nil {
		return nil, err
	}
	chain := [][]byte{leaf.Raw}
	for _, cross := range a.Chain {
		chain = append(chain, cross.Raw)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

// issued checks a new certificate as a client would. Name constraints and path lengths of a foreign authority thus fail
// here and not at the first admission.
func (a *Authority) issued(leaf *x509.Certificate, names Hosts, now time.Time) error {
	roots := Pool(a.Certificate)
	for _, host := range names.All() {
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
		if err != nil {
			return fmt.Errorf("use another CA: this one cannot issue a serving certificate for %q: %w", host, err)
		}
	}
	return nil
}

// CrossSign issues a certificate for another authority's name and key, valid where both are. If that certificate is
// sent along (Authority.Chain), a client that trusts only a verifies certificates that the other signs. So a must not
// be the newer of the two: a replaced key would stay trusted through that certificate. Where a may issue no CAs, because
// its path length is 0, the certificate may sign none: it tells replicas that a vouches for the other, and no more.
func (a *Authority) CrossSign(other *x509.Certificate, now time.Time, opts ...Option) (*x509.Certificate, error) {
	if err := a.Usable(now, opts...); err != nil {
		return nil, err
	}
	if !other.BasicConstraintsValid || !other.IsCA {
		return nil, ErrNotCA
	}
	template := &x509.Certificate{
		RawSubject:            other.RawSubject, // copied unchanged, because clients compare names bytewise
		SubjectKeyId:          other.SubjectKeyId,
		NotBefore:             later(other.NotBefore, a.Certificate.NotBefore),
		NotAfter:              earlier(other.NotAfter, a.Certificate.NotAfter),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	if a.Certificate.MaxPathLen == 0 && a.Certificate.MaxPathLenZero {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	if !template.NotBefore.Before(template.NotAfter) {
		return nil, errors.New("the two CAs are never valid at the same time")
	}
	return issue("a cross-signed CA certificate", template, a.Certificate, other.PublicKey, a.PrivateKey)
}

// RenewIn returns how long to wait before replacing a serving certificate that is valid for left from now. That is two
// thirds of left, moved by up to a tenth of that by jitter in [-1, 1], so that replicas that started together do not
// renew together. Added to the local time it results in a schedule by the local clock, regardless of the clock that the
// certificate was created by.
func RenewIn(left time.Duration, jitter float64) time.Duration {
	jitter = max(-1, min(1, jitter))
	twoThirds := left / 3 * 2
	return twoThirds + time.Duration(float64(twoThirds)/10*jitter)
}

// ErrInvalidHost is wrapped by the error about a host that is neither a DNS name nor an IP address.
var ErrInvalidHost = errors.New("not a DNS name or an IP address")

// Hosts holds the names in a serving certificate, each once, in the order they were passed.
type Hosts struct {
	DNS []string // lower case, ASCII
	IPs []net.IP
}

// All returns every name in the form in which a client asks for it.
func (h Hosts) All() []string {
	all := slices.Clone(h.DNS)
	for _, ip := range h.IPs {
		all = append(all, ip.String())
	}
	return all
}

// ParseHosts sorts hosts into DNS names and IP addresses. It removes brackets and zones of IPv6 addresses, lower-cases
// names and drops a final dot. An international name must be in its ASCII form (xn--...), the form that the API server
// asks for. At least one host is required. The error about a bad host names it and wraps ErrInvalidHost.
func ParseHosts(hosts []string) (Hosts, error) {
	var result Hosts
	for _, host := range hosts {
		if address, ok := parseAddress(host); ok {
			ip := net.IP(address.AsSlice())
			if !slices.ContainsFunc(result.IPs, ip.Equal) {
				result.IPs = append(result.IPs, ip)
			}
			continue
		}
		name, err := dnsName(host)
		if err != nil {
			return Hosts{}, err
		}
		if !slices.Contains(result.DNS, name) {
			result.DNS = append(result.DNS, name)
		}
	}
	if len(result.DNS)+len(result.IPs) == 0 {
		return Hosts{}, errors.New("a serving certificate needs at least one host")
	}
	return result, nil
}

func parseAddress(host string) (netip.Addr, bool) {
	host = strings.TrimSpace(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return netip.Addr{}, false
		}
	}
	address, err := netip.ParseAddr(host)
	return address.WithZone("").Unmap(), err == nil
}

func dnsName(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(host), "."))
	labels := strings.Split(name, ".")
	for i, label := range labels {
		if !validLabel(label) && (label != "*" || i != 0 || len(labels) == 1) {
			return "", fmt.Errorf("host %q is %w%s", host, ErrInvalidHost, hint(host))
		}
		if len(label) > 63 {
			return "", fmt.Errorf("host %q is %w: a label has %d characters, more than 63", host, ErrInvalidHost, len(label))
		}
	}
	if len(name) > 253 {
		return "", fmt.Errorf("host %q is %w: it has %d characters, more than 253", host, ErrInvalidHost, len(name))
	}
	return name, nil
}

// validLabel allows underscores, as crypto/x509 does, because they are common in names outside the public web.
func validLabel(label string) bool {
	for _, r := range label {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
		default:
			return false
		}
	}
	return label != ""
}

func hint(host string) string {
	if strings.Contains(host, "://") {
		return "; leave out the scheme"
	}
	if name, _, err := net.SplitHostPort(host); err == nil && name != "" {
		return "; leave out the port"
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "; write an international name in its ASCII form (xn--...)"
	}
	return ""
}
