package manifest

// This file parses listen addresses.

import (
	"net"
	"net/netip"
	"strconv"
)

// BindPort returns the port of a listen address that other machines can reach. It returns 0 for an address that they
// cannot reach, or that is switched off.
func BindPort(address string) int32 {
	host, service, err := net.SplitHostPort(address)
	if err != nil || !EveryAddress(host) {
		return 0
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return 0
	}
	return int32(port)
}

// EveryAddress reports whether listening on a host means listening on all addresses.
func EveryAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Collide reports whether one process cannot listen on both addresses, because they have the same port on the same
// interface or on all.
func Collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && portA == portB && portA != "0" && (hostA == hostB || EveryAddress(hostA) || EveryAddress(hostB))
}
