// Package rotation holds the specs of a program's long life: the CA rotates again and again, the Secret and the
// configurations are damaged, and versions with other steps are rolled out, while two API servers send admissions to 2 to 20
// replicas. It has no code but its specs.
//
// Every admission makes a TLS handshake of its own, without resumption, with a replica that is picked at random: a connection
// that stays open would hide what a rotation does to the next one, and replicas that take turns hide what a rollout does to
// one that is rarely asked. The load goes on while replicas come, go and die, and API servers freeze. No admission may fail,
// come back unchanged, or skip a step that all versions have.
//
// EIRINIX_ROTATIONS is the number of rotations of the long spec, each with a rollout, 30 by default; other specs make more
// rollouts in proportion. A rotation takes some five seconds, so
//
//	EIRINIX_ROTATIONS=1000 go test ./testing/rotation -timeout 3h -v -ginkgo.label-filter=soak
//
// takes an hour and a half.
package rotation
