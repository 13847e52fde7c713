package main

import "strings"

// mutant is one change of one file that makes Cluster IPAM wrong.
type mutant struct {
	name   string
	defect string // what is wrong then
	seen   string // who has or had this defect
	// file is where old is; empty if old is in one file only, which is then found by itself.
	file string
	old  string // found exactly once in its file
	new  string // in its place
	test string // the package and the test that has to fail
}

// caughtBy returns the package and the test that has to fail.
func (m mutant) caughtBy() (pkg, test string) {
	pkg, test, _ = strings.Cut(m.test, " ")
	return pkg, test
}

const (
	testAdoption   = "./controllers/clusteripam/claims TestPoolOfSomebodyElse"
	testGateClosed = "./controllers/clusteripam/gate TestGateStaysClosed"
	testClaims     = "./controllers/clusteripam/claims TestLife"
	testNetworks   = "./controllers/clusteripam/claims TestNetworkOfAClaim"
	testConditions = "./controllers/clusteripam/claims TestConditions"
	testInstances  = "./controllers/clusteripam/claims TestInstanceOfAClaim"
	testConfig     = "./controllers/clusteripam/gate TestConfig"
	testInfoblox   = "./controllers/clusteripam/infoblox TestSimulation"
)

var mutants = []mutant{
	{
		name: "infoblox-unverified", defect: "a CA file that cannot be read turns the verification of the server off", seen: "infoblox-go-client",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "\t\t\treturn nil, fmt.Errorf(\"read the CA certificates: %w\", err)\n",
		new:  "\t\t\treturn &tls.Config{InsecureSkipVerify: true}, nil\n",
		test: "./controllers/clusteripam/infoblox/wapi TestVerification",
	},
	{
		name: "infoblox-error-is-an-answer", defect: "an error of the server or of a proxy counts as a refusal of the write",
		file: "controllers/clusteripam/infoblox/wapi/errors.go",
		old:  "return e.notSent || e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout",
		new:  "return e.notSent || e.Status >= 400",
		test: "./controllers/clusteripam/infoblox/wapi TestFailures",
	},
	{
		name: "infoblox-instance-forgotten", defect: "the pools of an InfobloxInstance are not checked again with it",
		file: "controllers/clusteripam/infoblox/checks.go",
		old:  "if p.Spec.InstanceRef.Name == name {",
		new:  "if p.Spec.InstanceRef.Name == name && s == nil {",
		test: testInfoblox,
	},
	{
		name: "infoblox-checked-once", defect: "an Infoblox is not asked again whether everything is there", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/checks.go",
		old:  "\tl.term.Queue.AddAfter(runner.KeyOf(runner.InfobloxInstances, instance), again)\n",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-port-ignored", defect: "the port of an InfobloxInstance is ignored", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/checks.go",
		old:  "Port: i.Spec.Port, ",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-ca-ignored", defect: "the CA file of an InfobloxInstance is ignored", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/checks.go",
		old:  "CAFile: i.Spec.CustomCAPath, ",
		new:  "",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-dns-view-for-nothing", defect: "a pool without a zone needs a DNS view", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/checks.go",
		old:  "if from.dnsZone != \"\" {",
		new:  "if from.dnsZone != \"-\" {",
		test: "./controllers/clusteripam/infoblox TestChecks",
	},
	{
		name: "infoblox-sent-twice", defect: "a request that fails is sent again, also if it writes", seen: "infoblox-go-client",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "\tresponse, err := c.http.Do(request)\n",
		new:  "\tresponse, err := c.http.Do(request)\n\tif err != nil && request.GetBody != nil {\n\t\trequest.Body, _ = request.GetBody()\n\t\tresponse, err = c.http.Do(request)\n\t}\n",
		test: "./controllers/clusteripam/infoblox/wapi TestFailures",
	},
	{
		name: "infoblox-ipv6-host", defect: "a host that is an IPv6 address is cut at its last colon", seen: "cluster-api-ipam-provider-infoblox",
		file: "controllers/clusteripam/infoblox/wapi/client.go",
		old:  "if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {",
		new:  "if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {",
		test: "./controllers/clusteripam/infoblox/wapi TestHosts",
	},
	{
		name: "claim-prefix-zero", defect: "machines get a /0 if the claim has a cidr and no prefix", seen: "k0rdent",
		file: "controllers/clusteripam/claims/network.go",
		old:  "n.prefix = cidr.Bits()",
		new:  "n.prefix = 0",
		test: testNetworks,
	},
	{
		name: "claim-binding-moves", defect: "the claim is bound to another ClusterDeployment after its field was removed and set anew", seen: "k0rdent",
		file: "controllers/clusteripam/claims/claim.go",
		old:  "cmp.Or(Cluster(v.Claim, v.IPAM), v.Claim.Spec.Cluster)",
		new:  "v.Claim.Spec.Cluster",
		test: testClaims,
	},
	{
		name: "claim-takes-over-clusteripam", defect: "a ClusterIPAM of another claim is taken over", seen: "k0rdent",
		file: "controllers/clusteripam/claims/claim.go",
		old:  "case !owned && ref != \"\" && ref != name:",
		new:  "case !owned && ref != \"\" && ref != name && controller != nil:",
		test: "./controllers/clusteripam/claims TestClusterIPAMOfSomebodyElse",
	},
	{
		name: "claim-takes-over-pool", defect: "the addresses of a claim are written into an unrelated pool of its name", seen: "k0rdent",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "case !owner && (p.want == nil || p.write() != nil):",
		new:  "case !owner && p.want == nil:",
		test: testAdoption,
	},
	{
		name: "claim-clusteripam-not-adopted", defect: "a ClusterIPAM without an owner is not adopted, so nobody deletes it", seen: "k0rdent",
		file: "controllers/clusteripam/claims/claim.go",
		old:  "if !d.owned {\n\t\t\twant",
		new:  "if !d.owned && d.IPAM.Spec.ClusterIPAMClaimRef == \"\" {\n\t\t\twant",
		test: "./controllers/clusteripam/claims TestClusterIPAMOfSomebodyElse",
	},
	{
		name: "claim-edit-lost", defect: "an edit of the claim does not reach the pool", seen: "k0rdent",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "\treturn Change(p.kind, p.is, p.want)\n",
		new:  "\treturn nil\n",
		test: testClaims,
	},
	{
		name: "claim-pool-replaced", defect: "a patch of the pool removes what users added", seen: "k0rdent",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "want = d.InCluster.DeepCopy()",
		new:  "want.Status = d.InCluster.Status",
		test: "./controllers/clusteripam/claims TestDecide",
	},
	{
		name: "claim-invalid-edit-carried-out", defect: "an invalid edit of the provider moves the claim to a pool that does not exist",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "if d.network == nil && d.IPAM.Spec.Provider != \"\" {",
		new:  "if d.network == nil && d.IPAM.Spec.Provider == \"\" {",
		test: "./controllers/clusteripam/claims TestDecide",
	},
	{
		name: "claim-bound-without-a-pool", defect: "a claim stays bound when its pool is being deleted", seen: "k0rdent",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "p.ready, p.want, p.problem = false, nil, &Finding",
		new:  "p.want, p.problem = nil, &Finding",
		test: testClaims,
	},
	{
		name: "claim-old-pool-stays", defect: "the pool of an earlier provider stays for ever", seen: "k0rdent",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "return &Write{Kind: kind, Is: other}",
		new:  "return nil",
		test: testClaims,
	},
	{
		name: "claim-status-blind", defect: "the status of a claim is written although the claim has changed since it was read",
		file: "controllers/clusteripam/runner/change.go",
		old:  "patch = MergePatchOfVersion(is, changes)",
		new:  "patch = MergePatch(is, changes)",
		test: "./controllers/clusteripam/claims TestStatusOfAnother",
	},
	{
		name: "claim-refusal-unsaid", defect: "a claim whose pool the API server refuses does not say so",
		file: "controllers/clusteripam/claims/write.go",
		old:  "if tells := decide(err.Error()); tells != nil {",
		new:  "if tells := decide(err.Error()); tells == nil {",
		test: "./controllers/clusteripam/claims TestRefused",
	},
	{
		name: "claim-earlier-owner", defect: "a pool of an earlier claim of the same name is used before garbage collection deletes it",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "case !owner && earlier:",
		new:  "case !owner && earlier && p.write() != nil:",
		test: testAdoption,
	},
	{
		name: "claim-instance-moves", defect: "a pool that works moves to another InfobloxInstance",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "case meta.IsStatusConditionTrue(d.Infoblox.Status.Conditions, v1alpha1.ConditionReady):\n\t\t\treturn now",
		new:  "case len(d.Instances) > 9:\n\t\t\treturn now",
		test: testInstances,
	},
	{
		name: "claim-exhausted-unsaid", defect: "nobody is told that a pool is full", seen: "k0rdent",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "case usage.Free <= 0:",
		new:  "case usage.Free < 0:",
		test: testConditions,
	},
	{
		name: "claim-ignored-unsaid", defect: "nobody is told that a network is not used", seen: "k0rdent",
		file: "controllers/clusteripam/claims/claim.go",
		old:  "if s.CIDR != \"\" || ",
		new:  "if ",
		test: "./controllers/clusteripam/claims TestConditions",
	},
	{
		name: "gate-for-anybody", defect: "a ClusterDeployment gets the addresses of a claim for another one",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "cmp.Or(recorded, claim.Spec.Cluster) {",
		new:  "cmp.Or(claim.Spec.Cluster, recorded) {",
		test: testGateClosed,
	},
	{
		name: "gate-bound-unsaid", defect: "a claim that k0rdent's manager has bound and nobody has recorded keeps the gate closed without a word",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "if recorded == \"\" && claim.Status.Bound {",
		new:  "if recorded == \"\" && !claim.Status.Bound {",
		test: "./controllers/clusteripam/gate TestGateStaysClosed",
	},
	{
		name: "gate-of-others-clusteripam", defect: "the gate opens by a ClusterIPAM that does not belong to the claim", seen: "k0rdent",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "case !claims.Owned(ipam, claim) || ",
		new:  "case ipam == nil || ",
		test: testGateClosed,
	},
	{
		name: "gate-half-open", defect: "config.ipPool is written without ipamEnabled",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "changes := map[string]any{v1beta1.ConfigIPAMEnabled: true}",
		new:  "changes := map[string]any{}",
		test: testConfig,
	},
	{
		name: "gate-overwrites-config", defect: "a pool that a user wrote into the config is replaced, again and again",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "case present && !isPoolOf(is, v.Claim.Name): //",
		new:  "case present && is == nil: //",
		test: "./controllers/clusteripam/gate TestConfig",
	},
	{
		name: "gate-opens-for-a-users-pool", defect: "ipamEnabled is written although the pool in the config is not the claim's", seen: "k0rdent",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "case present && !isPoolOf(is, v.Claim.Name): //",
		new:  "case present && enabled == true && !isPoolOf(is, v.Claim.Name): //",
		test: "./controllers/clusteripam/gate TestConfig",
	},
	{
		name: "gate-stale-config", defect: "the config keeps the pool that the claim had before", seen: "k0rdent",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "\t\tchanges[data.Name] = data\n",
		new:  "\t\tif config[data.Name] == nil {\n\t\t\tchanges[data.Name] = data\n\t\t}\n",
		test: testConfig,
	},
	{
		name: "gate-overwrites-claim", defect: "a claim of a user that has the name of an inline claim is overwritten", seen: "k0rdent",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "case !owner && change != nil:",
		new:  "case !owner && change != nil && name == \"\":",
		test: "./controllers/clusteripam/gate TestClaimOfSomebodyElse",
	},
	{
		name: "gate-inline-without-cluster", defect: "an inline claim is for no ClusterDeployment", seen: "k0rdent",
		file: "controllers/clusteripam/gate/deployment.go",
		old:  "name, name, cmp.Or(says.Cluster, d.Name)",
		new:  "name, name, says.Cluster",
		test: "./controllers/clusteripam/gate TestInlineClaim",
	},
	{
		name: "gate-not-woken", defect: "a ClusterDeployment is not told of its claim", seen: "k0rdent",
		file: "controllers/clusteripam/gate/gate.go",
		old:  "l.deployments.By(byClaim, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}.String())",
		new:  "l.deployments.By(byClaim, types.NamespacedName{Name: object.GetName()}.String())",
		test: "./controllers/clusteripam/gate TestWake",
	},
	{
		name: "claim-not-woken-by-instance", defect: "a claim waits for an InfobloxInstance and is not told when there is one",
		file: "controllers/clusteripam/claims/claims.go",
		old:  "if claim.Spec.Provider == v1beta1.ProviderInfoblox {\n\t\t\t\tl.queue",
		new:  "if claim.Spec.Provider == v1beta1.ProviderInfoblox && claim.Status.Bound {\n\t\t\t\tl.queue",
		test: testClaims,
	},
	{
		name: "claim-pool-widened", defect: "a pool gets other addresses than it had under k0rdent's manager, and nobody has confirmed them",
		file: "controllers/clusteripam/claims/pool.go",
		old:  "\tp.want = nil\n\td.find(",
		new:  "\td.find(",
		test: "./controllers/clusteripam/claims TestPoolWouldWiden",
	},
	{
		name: "claim-made-while-it-leaves", defect: "a ClusterIPAM is made for a claim that clusterctl is moving away",
		file: "controllers/clusteripam/claims/claim.go",
		old:  " || contract.GoingAway(v.Claim) ||",
		new:  " ||",
		test: testClaims,
	},
}
