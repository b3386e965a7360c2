// Package rotation holds the specs of a certificate's long life: the CA rotates again and again, and the Secret and the
// configurations are damaged, while two API servers send admissions to three replicas. It has no code but its specs.
//
// Every admission makes a TLS handshake of its own, without resumption: a connection that stays open would hide what a
// rotation does to the next one. The load goes on while replicas come and go and API servers freeze, and no admission
// may fail or come back unchanged.
//
// EIRINIX_ROTATIONS is the number of rotations of the long spec, 30 by default. A rotation takes some five seconds, so
//
//	EIRINIX_ROTATIONS=1000 go test ./testing/rotation -timeout 3h -v -ginkgo.label-filter=soak
//
// takes an hour and a half.
package rotation
