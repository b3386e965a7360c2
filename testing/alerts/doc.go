// Package main draws docs/dashboard.json: go run . > ../../docs/dashboard.json. Its tests evaluate docs/alerts.yaml with
// Prometheus' own rules, on made-up series and on those of a faulty program, and check that alerts and dashboard query
// metrics that the library has. It is a module of its own, so that the library does not depend on Prometheus' server.
package main
