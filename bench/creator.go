package main

// This file creates pods through an API server and measures the latency.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// creator creates the same pod repeatedly. It uses plain HTTP, so that the figures contain no work of a client
// library.
type creator struct {
	client *http.Client
	host   string
	head   string // the pod's JSON before the name; tail is the rest
	tail   string
	serial int
}

func newCreator(config *rest.Config, r *review) (*creator, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	var pod map[string]any
	if err := json.Unmarshal(r.raw, &pod); err != nil {
		return nil, err
	}
	const name = "@name@"
	metadata := at(pod, "metadata")
	metadata["name"] = name
	for _, set := range []string{"namespace", "uid", "creationTimestamp", "generation"} {
		delete(metadata, set)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	head, tail, _ := strings.Cut(string(text), name)
	return &creator{client: client, host: config.Host, head: head, tail: tail}, nil
}

// create creates a pod, deletes it again and returns the duration of the creation.
func (c *creator) create(ctx context.Context, s *set) (time.Duration, error) {
	took, text, err := c.createOnce(ctx, s)
	if err != nil {
		return 0, err
	}
	if done, err := stepsDone(text); err != nil || done != s.steps {
		return 0, fmt.Errorf("%d of %d steps have worked on the pod: %w", done, s.steps, err)
	}
	return took, nil
}

// awaitWebhooks creates pods until the API server calls all webhooks of a set. The API server does not report when it
// has learned of a configuration.
func (c *creator) awaitWebhooks(ctx context.Context, s *set) error {
	for range 250 {
		_, text, err := c.createOnce(ctx, s)
		if err != nil {
			return err
		}
		done, err := stepsDone(text)
		if err != nil || done == s.steps {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("the API server did not call %d webhooks", len(s.urls))
}

func (c *creator) createOnce(ctx context.Context, s *set) (time.Duration, []byte, error) {
	c.serial++
	name := fmt.Sprintf("pod-%d", c.serial)
	pods := c.host + "/api/v1/namespaces/" + s.namespace + "/pods"
	began := time.Now()
	text, err := c.send(ctx, http.MethodPost, pods, c.head+name+c.tail)
	took := time.Since(began)
	if err != nil {
		return 0, nil, err
	}
	_, err = c.send(ctx, http.MethodDelete, pods+"/"+name, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`)
	return took, text, err
}

func (c *creator) send(ctx context.Context, method, url, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, bytes.TrimSpace(text))
	}
	return text, err
}
