package main

// This file holds the attacks.

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/convert"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// attacks returns the attacks for which access to the port suffices.
func attacks() []attack {
	return []attack{
		{name: "9 MB of empty items", run: func(ctx context.Context, c *child) error {
			empty := pod(`"containers":[` + strings.Repeat("{},", 3<<20) + `{}]`)
			odd := bytes.Replace(empty, []byte(`{"kind":"Pod"`), []byte(`{"kind":"a","kind":"Pod"`), 1) // takes another decoder
			atOnce(4, func(i int) { repeat(ctx, c, hostilePath, false, [][]byte{empty, odd}[i%2]) })
			return nil
		}},
		{name: "twenty chunked bodies of 200 MB", run: func(ctx context.Context, c *child) error {
			body := bytes.Repeat([]byte(" "), 200<<20)
			atOnce(20, func(int) { repeat(ctx, c, hostilePath, true, body) })
			return nil
		}},
		{name: "eight readers that never read", run: func(ctx context.Context, c *child) error {
			longUID := reviewOf(strings.Repeat("u", 30<<20), string(podText(`"containers":[{"name":"a"}]`)))
			containers := make([]string, 20_000)
			for i := range containers {
				containers[i] = fmt.Sprintf(`{"name":"c-%d","image":"example.org/a:1","args":[%q]}`, i, strings.Repeat("x", 1200))
			}
			longAnswer := pod(`"containers":[` + strings.Join(containers, ",") + `]`)
			atOnce(8, func(i int) { neverRead(ctx, c, [][]byte{longUID, longAnswer}[i%2]) })
			return nil
		}},
		{name: "a thousand unfinished headers", run: func(ctx context.Context, c *child) error {
			atOnce(1000, func(int) { neverFinish(ctx, c) })
			return nil
		}},
		{name: "a thousand bodies that trickle", run: func(ctx context.Context, c *child) error {
			atOnce(1000, func(int) {
				for ctx.Err() == nil {
					trickle(ctx, c)
				}
			})
			return nil
		}},
		{name: "sixty conversions of 293 KB", run: func(ctx context.Context, c *child) error {
			large := newJob(1)
			for range 7 {
				large.Spec.Template.Containers[0].Env = append(large.Spec.Template.Containers[0].Env, large.Spec.Template.Containers[0].Env...)
			}
			large.Spec.Template.Containers = slices.Repeat(large.Spec.Template.Containers, 4)
			rev, err := conversionOf(large)
			if err != nil {
				return err
			}
			atOnce(60, func(int) { repeat(ctx, c, conversionPath, false, rev.body) })
			return nil
		}},
		{name: "objects made to cost conversions time", run: func(ctx context.Context, c *child) error {
			failed := make([]error, 4)
			atOnce(len(failed), func(i int) { failed[i] = convertAgain(ctx, c, costlyJobs()[i]) })
			return errors.Join(failed...)
		}},
		{name: "a hundred conversions that hang", run: func(ctx context.Context, c *child) error {
			rev, err := conversionOf(newJob(1))
			if err != nil {
				return err
			}
			atOnce(100, func(int) { repeat(ctx, c, hungConversion+"?timeout=2s", false, rev.body) })
			return nil
		}},
	}
}

// attackThroughAPIServer creates pods of 3 MB, eight concurrently.
func attackThroughAPIServer(ctx context.Context) (attack, func() error, error) {
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		return attack{}, nil, err
	}
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err == nil {
		_, err = clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nameHostile}}, metav1.CreateOptions{})
	}
	if err != nil {
		return attack{}, nil, errors.Join(err, plane.Stop())
	}
	// The API server takes half a minute to read such pods before it calls the webhook.
	return attack{name: "eight pods of 3 MB through an API server", least: 45 * time.Second, run: func(ctx context.Context, c *child) error {
		configuration := webhookConfiguration(nameHostile, nameHostile, c.Bundle, []string{c.at(strings.TrimSuffix(hostilePath, "?timeout=10s"))})
		if _, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
			return err
		}
		creator, err := newCreator(plane.Config(), &review{raw: podText(`"containers":[{"name":"a","image":"b"}],"tolerations":[` + strings.Repeat("{},", 900_000) + `{}]`)})
		if err != nil {
			return err
		}
		atOnce(8, func(i int) {
			for ctx.Err() == nil {
				_, _ = creator.send(ctx, http.MethodPost, creator.host+"/api/v1/namespaces/"+nameHostile+"/pods", creator.head+fmt.Sprintf("pod-%d", i)+creator.tail)
			}
		})
		return nil
	}}, plane.Stop, nil
}

// atOnce runs n functions concurrently and waits for them.
func atOnce(n int, run func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { run(i) })
	}
	all.Wait()
}

func podText(spec string) []byte {
	return []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{` + spec + `}}`)
}

func pod(spec string) []byte { return reviewOf("u", string(podText(spec))) }

func reviewOf(uid, object string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + uid + `","kind":{"group":"","version":"v1","kind":"Pod"},` +
		`"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"a","name":"a","object":` + object + `}}`)
}

// repeat sends a body repeatedly. It ignores the responses.
func repeat(ctx context.Context, c *child, path string, chunked bool, body []byte) {
	client := c.client(false)
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		var text io.Reader = bytes.NewReader(body)
		if chunked {
			text = io.MultiReader(text) // hides the length from net/http
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.at(path), text)
		if err != nil {
			return
		}
		request.Header.Set("Content-Type", "application/json")
		if resp, err := client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
}

// costlyJobs returns reviews of objects that a tenant can make: with an annotation that claims to hold many values, with
// what JSON writes in six bytes each, and with many items of the same names.
func costlyJobs() [][]byte {
	job := func(annotation, template string) []byte {
		return []byte(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"` + hubVersion.String() +
			`","objects":[{"apiVersion":"` + spokeVersion.String() + `","kind":"` + jobKind + `","metadata":{"name":"a","namespace":"b","annotations":{"` +
			convert.Prefix + strings.Repeat("0", 32) + `":"01234567.AAAAAAAAAAAAAAAAAAAAAA.` + annotation + `"}},"spec":{"schedule":"5 4","template":{` + template + `}}}]}}`)
	}
	items := func(n int, item string) string {
		return `"containers":[` + strings.Repeat(item+",", n) + item + `]`
	}
	claims := strings.Repeat(`[\"spec\",\"template\",\"containers\",0,1],`, 1600) // 70 KB
	return [][]byte{
		job(claims, items(20_000, `{"name":"a"}`)),
		job(claims, items(20_000, `{"name":"a","x":"`+strings.Repeat("0", 40)+`"}`)),
		job("", `"x":"`+strings.Repeat("<", 12<<10)+`"`),
		job("", items(16_000, `{"name":"a","image":"i","x":{"y":[1,2,3]},"env":[{"name":"a"}]}`)),
	}
}

// convertAgain sends a conversion repeatedly. It returns an error if one is not answered with an object, since lists of its
// kind would then fail.
func convertAgain(ctx context.Context, c *child, body []byte) error {
	w := &remote{client: c.client(false), url: c.at(conversionPath), body: body}
	defer w.client.CloseIdleConnections()
	for ctx.Err() == nil {
		if _, answer, err := w.once(); err != nil || !bytes.Contains(answer, []byte(`"status":"Success"`)) {
			return fmt.Errorf("an object of %d KB is not converted: %.300s %w", len(body)>>10, answer, err)
		}
	}
	return nil
}

// neverRead sends a body on a connection with a minimal receive buffer, and holds the connection without reading.
func neverRead(ctx context.Context, c *child, body []byte) {
	conn, err := dial(ctx, c)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", hostilePath, len(body)); err == nil {
		_, _ = conn.Write(body)
	}
	<-ctx.Done()
}

// neverFinish sends as much of a header as the server accepts, and holds the connection.
func neverFinish(ctx context.Context, c *child) {
	conn, err := dial(ctx, c)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n", hostilePath)
	for line := "X-Long: " + strings.Repeat("x", 8000) + "\r\n"; err == nil && ctx.Err() == nil; {
		if _, err = io.WriteString(conn, line); err == nil {
			err = pause(ctx, 10*time.Millisecond)
		}
	}
	<-ctx.Done()
}

// trickle sends a body of 1 KB, a byte each 200 ms, until it ends or the server closes the connection.
func trickle(ctx context.Context, c *child) {
	conn, err := dial(ctx, c)
	if err != nil {
		_ = pause(ctx, 200*time.Millisecond)
		return
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", hostilePath)
	for err == nil {
		if err = pause(ctx, 200*time.Millisecond); err == nil {
			_, err = io.WriteString(conn, " ")
		}
	}
}

func dial(ctx context.Context, c *child) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(c.URL, "https://"))
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // attackers do not verify their target
	return secure, secure.HandshakeContext(ctx)
}
