package kubelet

// This file connects the pods: each has an address on a bridge, in the network namespace of the control plane.

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The network of the pods. It must not be loopback, because EndpointSlices refuse that. It is visible in the network
// namespace of the test only.
const (
	bridge  = "pods"
	gateway = "10.88.0.1"
	bits    = 16
)

// Network hands out addresses and connects processes. Addresses are never used twice.
type Network struct {
	bridge netlink.Link
	last   atomic.Uint32
}

// NewNetwork makes the bridge, and turns on the loopback interface. It changes the network namespace of the process, so
// call it only in one that the test has made.
func NewNetwork() (*Network, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("network: the loopback interface: %w", err)
	}
	made := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	if err := netlink.LinkAdd(made); err != nil {
		return nil, fmt.Errorf("network: a bridge cannot be made: %w", err)
	}
	err = errors.Join(netlink.AddrAdd(made, addressOf(net.ParseIP(gateway))), netlink.LinkSetUp(lo), netlink.LinkSetUp(made))
	if err != nil {
		return nil, fmt.Errorf("network: the bridge cannot be set up: %w", err)
	}
	return &Network{bridge: made}, nil
}

// Address returns an address of the network that no process has.
func (n *Network) Address() string { return addressAt(n.last.Add(1)).String() }

func addressAt(number uint32) net.IP {
	host := number + 1 // the gateway is the first
	return net.IPv4(10, 88, byte(host>>8), byte(host))
}

// Attach connects the network namespace of a process to the bridge and returns its address. The connection ends with
// the process.
func (n *Network) Attach(pid int) (string, error) {
	number := n.last.Add(1)
	ip := addressAt(number)
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("pod%d", number), MasterIndex: n.bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return "", fmt.Errorf("network: connect process %d: %w", pid, err)
	}
	if err := errors.Join(netlink.LinkSetUp(pair), setUpIn(pid, ip)); err != nil {
		return "", fmt.Errorf("network: set up the address %s of process %d: %w", ip, pid, err)
	}
	return ip.String(), nil
}

// setUpIn gives the process its address.
func setUpIn(pid int, ip net.IP) error {
	namespace, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer namespace.Close()
	inside, err := netlink.NewHandleAt(namespace)
	if err != nil {
		return err
	}
	defer inside.Close()
	for _, name := range []string{"lo", "eth0"} {
		link, err := inside.LinkByName(name)
		if err != nil {
			return err
		}
		if name == "eth0" {
			if err := inside.AddrAdd(link, addressOf(ip)); err != nil {
				return err
			}
		}
		if err := inside.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

func addressOf(ip net.IP) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, 32)}}
}
