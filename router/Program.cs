// kv-router: the front for clients that do not route themselves. Every expected failure is one line on standard error.
using KvCluster.Router;
using KvCluster.Serving;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args);
