// Package rotation holds the specs for a program's long-term operation. The CA rotates repeatedly, the Secret and the
// webhook configurations are damaged, and versions with other steps are rolled out. Meanwhile two API servers send
// admission requests to 2 to 20 replicas. The package contains only specs.
//
// Every admission request makes its own TLS handshake, without resumption, with a randomly chosen replica. A
// connection that stays open would hide the effect of a rotation on the next one. Round-robin would hide the effect of
// a rollout on a replica that is rarely called. The load continues while replicas start, stop and die, and while API
// servers freeze. No admission request may fail, come back unchanged, or skip a step that all versions have.
//
// EIRINIX_ROTATIONS is the number of rotations in the long spec, each with a rollout; the default is 30. Other specs
// scale their number of rollouts with it. A rotation takes about five seconds, so
//
//	EIRINIX_ROTATIONS=1000 go test ./testing/rotation -timeout 3h -v -ginkgo.label-filter=soak
//
// takes an hour and a half.
package rotation
