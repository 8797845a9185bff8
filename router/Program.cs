// kv-router: the front for clients that do not route themselves. Every expected failure is one line on standard error.
using KvCluster.Router;
using KvCluster.ServiceDefaults;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args);
