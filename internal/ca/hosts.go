package ca

// This file turns the hosts that a user configures into the names in a certificate.

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

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
