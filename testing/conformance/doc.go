// Package conformance holds the scenarios with which the Kubernetes project tests admission webhooks. This library is
// the webhook server, and a real control plane is the client. The package contains only specs.
//
// A spec is named after its scenario and labelled with the scenario's number, such as S13. If the way in which the API
// server calls the webhook matters, it is also labelled with its mode, URL or Service. So
//
//	go test ./testing/conformance -v -ginkgo.label-filter='S13 && Service'
//
// runs one scenario in one mode. A run of all specs ends with a table of all scenarios. It fails if a scenario has
// neither a spec that ran nor a documented reason for having none. The API server can be of an older release (make
// conformance K8S=1.34). Features that the release lacks are listed below the table.
package conformance
