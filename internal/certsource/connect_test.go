package certsource_test

import (
	"crypto/tls"
	"errors"
	"net"
)

// connect lets a client and a server shake hands over loopback: a pipe would block both when one refuses.
func connect(server, client *tls.Config) error {
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		return err
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	err = tls.Client(conn, client).Handshake()
	conn.Close()
	return errors.Join(err, <-served)
}
