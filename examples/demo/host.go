package main

// This file finds an address at which the API server can call the demo.

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

// address is the address that the API server calls, and the one that the demo listens on.
type address struct {
	host   string // a name or an IP address of this machine that the API server can reach
	listen string // port 0 means any free port
	why    string // the reason for the choice, for the user
}

// callAddress finds an address of this machine that the API server can call, unless host sets it.
func callAddress(host, apiServer string) (address, error) {
	server, err := url.Parse(apiServer)
	if err != nil {
		return address{}, fmt.Errorf("the address of the API server is no URL: %w", err)
	}
	switch {
	case host != "" && isLoopback(host):
		return address{host: host, listen: net.JoinHostPort(host, "0"), why: "as -host says"}, nil
	case host != "": // perhaps a name, or the address of a port mapping
		return address{host: host, listen: ":0", why: "as -host says"}, nil
	case isLoopback(server.Hostname()):
		return address{host: "127.0.0.1", listen: "127.0.0.1:0", why: "the API server is on this machine"}, nil
	}
	local, err := routeTo(server)
	if err != nil {
		return address{}, fmt.Errorf("give -host the name or IP address of this machine as the API server at %s sees it: %w", server.Host, err)
	}
	return address{
		host:   local,
		listen: net.JoinHostPort(local, "0"),
		why:    "this machine's address on the way to the API server at " + server.Host + "; -host gives another",
	}, nil
}

// routeTo returns the local address from which the kernel would send to the server. It sends nothing.
func routeTo(server *url.URL) (string, error) {
	port := server.Port()
	if port == "" {
		port = "443"
	}
	conn, err := net.Dial("udp", net.JoinHostPort(server.Hostname(), port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return "", err
	}
	return local.Addr().Unmap().WithZone("").String(), nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
