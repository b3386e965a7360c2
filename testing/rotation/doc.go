// Package rotation holds the specs for a program's long-term operation. The CA rotates repeatedly, versions with other steps
// are rolled out, and backups of etcd are restored. Meanwhile two API servers send admission requests to 2 or 3 replicas.
// Other specs do the same to programs that convert custom resources, which are read, written and watched. The package
// contains only specs.
//
// Each spec is here for one fact about real API servers. That the Secret and the configurations heal is specified in
// internal/controller and testing/internal/world.
//
//   - Rotations: each API server makes connections anew when it wants to, and trusts by its own copy of the configurations.
//   - A frozen API server goes on with the caBundle of before, in a call that it has begun.
//   - Shops: a watch cache and a request convert with the caBundle that they began with.
//   - Rollouts: each API server learns of a registration late, so that objects still meet the version before.
//   - A backup: etcd goes back as a whole, under watches that go on.
//
// Every admission request makes its own TLS handshake, without resumption, with a randomly chosen replica. A
// connection that stays open would hide the effect of a rotation on the next one. Round-robin would hide the effect of
// a rollout on a replica that is rarely called. The load continues while replicas start, stop and die, and while API
// servers freeze. No admission request may fail, come back unchanged, or skip a step that all versions have.
//
// EIRINIX_ROTATIONS is the number of rotations with admissions, each with a rollout: three by default. There are a fifth
// as many with conversions, and one at least. Other specs scale their number of rollouts with it. A rotation takes about
// five seconds: the time for which the old CA stays trusted, and up to a second before each write, so that one replica
// writes for all. One that the age of the CA begins comes after fifteen. With conversions a rotation takes 25 seconds. So
//
//	EIRINIX_ROTATIONS=1000 go test ./testing/rotation -timeout 4h -v -ginkgo.label-filter=soak
//
// takes three hours.
package rotation
