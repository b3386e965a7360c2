// Package conformance holds those scenarios with which the Kubernetes project tests admission webhooks that its own
// specs, which make upstream runs, do not play. This library is the webhook server, and a real control plane is the
// client. The package contains only specs.
//
// A spec is labelled with its scenario's number, such as S24. So
//
//	go test ./testing/conformance -v -ginkgo.label-filter=S11
//
// runs one scenario. A run ends with a table of all scenarios. A run of all specs fails if a scenario has
// neither a spec that ran nor a documented reason for having none. The API server can be of an older release (make
// conformance K8S=1.34). Features that the release lacks are listed below the table.
package conformance
