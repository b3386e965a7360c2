package diagnose

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"k8s.io/apimachinery/pkg/version"
)

// listening tries the port that this process listens on itself.
func (d *diagnosis) listening(ctx context.Context) {
	if d.Listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(d.Listen)
	if err == nil {
		if ip, parseErr := netip.ParseAddr(host); host == "" || parseErr == nil && ip.IsUnspecified() {
			host = "localhost"
		}
		err = d.shake(ctx, net.JoinHostPort(host, port), &tls.Config{InsecureSkipVerify: true}, false) // whether anybody is there
	}
	if err != nil {
		d.add(Finding{
			Code: NothingListens, Severity: Problem, Object: d.Listen, Evidence: err.Error(),
			Message: fmt.Sprintf("this process does not answer on %s, where it should listen", d.Listen),
			Remedy:  "see in its log why the webhook server ended, and restart it",
		})
	}
}

// canProbe tells whether this process knows where the API server calls.
func (d *diagnosis) canProbe() bool {
	return !d.serviceMode() || d.backend.service != nil && !d.backend.headless()
}

// probe goes the way of the API server from here, as far as that can be done: the same address, the same server name,
// and the caBundle that is registered. answer waits for a word over HTTP too, whatever it is.
func (d *diagnosis) probe(ctx context.Context, answer bool) error {
	host := d.Options.Target.Host
	switch {
	case d.backend.external():
		host = d.backend.service.Spec.ExternalName
	case d.serviceMode():
		host = d.backend.service.Spec.ClusterIP
	}
	config := &tls.Config{ServerName: d.serverName(), InsecureSkipVerify: true}
	if bundle := d.bundle(); bundle != nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(bundle)
		config.InsecureSkipVerify = false
	}
	return d.shake(ctx, address(host, d.Options.Target.Port), config, answer)
}

// bundle is the first caBundle that is registered and can be read.
func (d *diagnosis) bundle() []byte {
	for _, e := range d.Entries {
		if h, ok := d.live[e.Path]; ok && readable(h.ClientConfig.CABundle) {
			return h.ClientConfig.CABundle
		}
	}
	return nil
}

// shake connects and shakes hands, and waits for an answer if it is wanted. A server that hangs up does not hang.
func (d *diagnosis) shake(ctx context.Context, address string, config *tls.Config, answer bool) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if !answer {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(connection, "GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address); err != nil {
		return err
	}
	if _, err = connection.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it shakes hands and says nothing: %w", err)
	}
	return nil
}

// fromHere looks at the path from this process, where the API server does not tell.
func (d *diagnosis) fromHere(ctx context.Context) {
	at := d.Options.Target.String()
	if !d.canProbe() {
		return
	}
	if err := d.probe(ctx, false); err != nil {
		d.caller = "this process"
		d.add(d.finding(ctx, codeOf(err), err.Error()))
		return
	}
	d.add(Finding{
		Code: ReachedFromHere, Severity: Note, Object: at,
		Message: fmt.Sprintf("this process reaches %s; whether the API server does is not known, because %s", at, d.inconclusive),
	})
}

func parseVersion(body []byte) (version.Info, error) {
	var info version.Info
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&info); err != nil {
		return info, fmt.Errorf("what answers is no API server: %w", err)
	}
	return info, nil
}
