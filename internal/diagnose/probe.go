package diagnose

// This file connects to the webhook from this process, and determines why a connection breaks.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// checkListener connects to the port that this process itself listens on.
func (d *diagnostic) checkListener(ctx context.Context) {
	own, _ := d.own()
	if own == "" {
		return
	}
	if err := d.shake(ctx, own, &tls.Config{InsecureSkipVerify: true}, nil); err != nil { // any server is accepted
		d.add(problem(diagnosis.NothingListens, d.Listen,
			fmt.Sprintf("this process does not answer on %s, where it should listen", d.Listen),
			"find out from its log why the webhook server ended, and restart it", err.Error()))
	}
}

// targetAddress returns the address that the API server calls. It is empty if this process does not know it.
func (d *diagnostic) targetAddress() string {
	host, service := d.Options.Target.Host, d.backend.service.Spec
	switch {
	case !d.serviceMode():
	case !d.backend.found || d.backend.headless():
		return ""
	case d.backend.external():
		host = service.ExternalName
	default:
		host = service.ClusterIP
	}
	return net.JoinHostPort(host, strconv.Itoa(int(d.Options.Target.Port)))
}

// probe follows the API server's path from this process, as far as possible: the same address, the same server name,
// and the registered caBundle.
func (d *diagnostic) probe(ctx context.Context, then func(net.Conn) error) error {
	config, roots := &tls.Config{ServerName: d.serverName(), InsecureSkipVerify: true}, x509.NewCertPool()
	if slices.ContainsFunc(d.Entries, func(e webhookconf.Entry) bool {
		return roots.AppendCertsFromPEM(d.live[e.Path].ClientConfig.CABundle) // the first one that is readable
	}) {
		config.RootCAs, config.InsecureSkipVerify = roots, false
	}
	return d.shake(ctx, d.targetAddress(), config, then)
}

// shake connects, completes the TLS handshake, and then calls the function, if there is one, within the timeout.
func (d *diagnostic) shake(ctx context.Context, address string, config *tls.Config, then func(net.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	connection, err := d.Network.DialTLS(ctx, address, config)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil || then == nil {
		return err
	}
	return then(connection)
}

// awaitAnswer sends a request, and waits for a response of any kind. A server that closes the connection counts as an
// answer: it does not hang.
func awaitAnswer(connection net.Conn) error {
	// A server that rejects the client can close the connection before it has read anything. Its alert is readable
	// anyway.
	_, writeErr := fmt.Fprintf(connection, "GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", connection.RemoteAddr())
	_, err := connection.Read(make([]byte, 1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it completes the handshake and sends nothing: %w", err)
	case isAlert(err):
		return err
	case err != nil && writeErr != nil:
		return writeErr
	}
	return nil
}

// isAlert reports whether the server sent the error as a TLS alert.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// alertWithin is how long a server may take to reject a client after the handshake.
const alertWithin = time.Second

// refusesCallers reports whether a connection broke because the server requires a client certificate, or another one.
// The evidence does not always show that: since TLS 1.3 a server verifies the certificate only after the client has
// finished the handshake, so that the client's first write can fail before it has read the alert. This process completes
// a handshake without a certificate and writes nothing, so that the connection can only end with the alert, heard.
func (d *diagnostic) refusesCallers(ctx context.Context) (refuses bool, heard string) {
	own, _ := d.own()
	for _, a := range []string{d.targetAddress(), own} {
		if a == "" {
			continue
		}
		asked := false // the server has sent a CertificateRequest
		err := d.shake(ctx, a, &tls.Config{
			ServerName:         d.serverName(),
			InsecureSkipVerify: true, // no data is sent, and no received data is trusted
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &tls.Certificate{}, nil
			},
		}, func(connection net.Conn) error {
			if !asked {
				return nil
			}
			err := connection.SetReadDeadline(time.Now().Add(min(alertWithin, d.Timeout)))
			if err == nil {
				_, err = connection.Read(make([]byte, 1))
			}
			return err // which matters only if it is an alert
		})
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			continue
		}
		if asked && isAlert(err) {
			return true, err.Error()
		}
		return asked && d.AsksClients, ""
	}
	return d.AsksClients, ""
}

// callFromHere checks the path from this process if the canary is inconclusive.
func (d *diagnostic) callFromHere(ctx context.Context) {
	if d.targetAddress() == "" {
		return
	}
	if err := d.probe(ctx, nil); err != nil {
		d.caller = "this process"
		d.add(d.brokenPath(ctx, classify(err.Error()), err.Error()))
		return
	}
	at := d.Options.Target.String()
	d.add(note(diagnosis.ReachedFromHere, at,
		fmt.Sprintf("this process reaches %s; it is not known whether the API server does, because %s",
			at, d.inconclusive),
		""))
}
