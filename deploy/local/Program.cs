// kv-local: a whole cluster on this machine. `dotnet run -c Release --project deploy/local` is command 1 of the README.
// Exit codes are those of ExitCodes; every expected failure is one line on standard error.
using KvCluster.Local;
using KvCluster.ServiceDefaults;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args, Launcher.RunAsync);
