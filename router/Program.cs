// kv-router: the front end for clients that do not route calls themselves. Every expected failure is one line on standard error.
using KvCluster.Router;
using KvCluster.ServiceDefaults.Programs;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args);
