// kv-node: a node of a cluster, and what prepares one. Exit codes are those of ExitCodes; every expected failure is one line on
// standard error.
using KvCluster.Node;
using KvCluster.ServiceDefaults;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args);
