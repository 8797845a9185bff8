// kv-local: a whole cluster on this machine, started by `dotnet run -c Release --project deploy/local`. Every expected failure is one line on standard error
// and one of the exit codes in ExitCodes.
using KvCluster.Local;
using KvCluster.ServiceDefaults.Programs;

SharedArrays.KeepMany();
return await CommandLine.InvokeAsync(args, Launcher.RunAsync);
