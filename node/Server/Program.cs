// kv-node: runs a node of a cluster, and prepares clusters. The exit codes are those of ExitCodes. Every expected failure is one line on
// standard error.
using KvCluster.Node;
using KvCluster.ServiceDefaults.Programs;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args);
