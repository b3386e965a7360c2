package main

// This file holds the conversion with which the Kubernetes project tests conversion webhooks: an address in one field in
// v1, in two fields in v2.

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"code.cloudfoundry.org/eirinix/conversion"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// addresses is the name of a definition. A conversion takes all kinds of its group, and each test defines another one.
const addresses = "addresses.stable.example.com"

// joined returns an address of v2 in one field.
func joined(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	host, hasHost, err := unstructured.NestedString(o.Object, "host")
	if err != nil {
		return nil, err
	}
	port, hasPort, err := unstructured.NestedString(o.Object, "port")
	if err != nil {
		return nil, err
	}
	delete(o.Object, "host")
	delete(o.Object, "port")
	if hasHost || hasPort {
		o.Object["hostPort"] = host + ":" + port
	}
	return o, nil
}

// parted returns an address of v1 in two fields.
func parted(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	address, found, err := unstructured.NestedString(o.Object, "hostPort")
	if err != nil || !found {
		return o, err
	}
	host, port, _ := strings.Cut(address, ":")
	if strings.Count(address, ":") != 1 {
		return nil, fmt.Errorf("hostPort %q is no host and port with one colon between them", address)
	}
	delete(o.Object, "hostPort")
	o.Object["host"], o.Object["port"] = host, port
	return o, nil
}

// converting returns a handler with the path of the original, in front of the library's.
func converting() (http.Handler, error) {
	played, err := play(conversion.Of[*unstructured.Unstructured]{
		CRD: addresses, Version: "v1",
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v2", joined, parted)},
	})
	if err != nil {
		return nil, err
	}
	mux := newMux()
	mux.HandleFunc("/crdconvert", func(w http.ResponseWriter, r *http.Request) {
		move(w, r, url.URL{Path: "/convert/" + addresses, RawQuery: r.URL.RawQuery}, played.Handler)
	})
	return mux, nil
}
