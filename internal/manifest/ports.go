package manifest

// This file reads addresses to listen on.

import (
	"net"
	"net/netip"
	"strconv"
)

// BindPort is the port of an address that others reach; 0 for one that they do not reach, or that is switched off.
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

// EveryAddress reports whether a host to listen on stands for every address.
func EveryAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Collide reports whether one process cannot listen on both addresses: they have one port, on one interface or on all.
func Collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && portA == portB && portA != "0" && (hostA == hostB || EveryAddress(hostA) || EveryAddress(hostB))
}
