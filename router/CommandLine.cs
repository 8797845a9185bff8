using KvCluster.AdminConsole;
using KvCluster.Client.Telemetry;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.ServiceDefaults.Telemetry;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Router;

/// <summary>The commands of kv-router.</summary>
internal static class CommandLine
{
    /// <summary>Runs a command.</summary>
    /// <returns>The exit code.</returns>
    public static Task<int> InvokeAsync(string[] arguments)
    {
        var program = new ProgramCommands("kv-router", "A router of a KvCluster.", RouterSettings.RunTable);
        program.Add("run", "Runs a router until SIGTERM or Ctrl-C.", RouterSettings.RunTable, RouterSettings.Check, RunAsync);
        program.AddConfigShow("run", RouterSettings.RunTable, RouterSettings.Check);
        program.AddHealth();
        return program.InvokeAsync(arguments, ExitCodeOf);
    }

    private static int ExitCodeOf(Exception failure) => failure switch
    {
        SettingsException or UnusableFileException => ExitCodes.Usage,
        IOException => ExitCodes.Unavailable,
        _ => ExitCodes.Internal,
    };

    private static async Task<int> RunAsync(Settings settings, CancellationToken stop)
    {
        if (RouterSettings.MemoryRefusal(settings, ProcessMemory.LimitBytes) is { } refusal)
            throw new SettingsException([refusal]);
        var token = new AdminToken(settings.Get(CommonSettings.AdminTokenFile));
        var exported = new ExportedService("kv-router", Environment.MachineName, Cluster: null);
        using var logs = ProcessLogs.Create(settings, exported);
        using var export = TelemetryExport.Start(exported, logs.CreateLogger<TelemetryExport>());
        using var stopping = InputEnd.Link(settings.Get(CommonSettings.UntilStdinEnds), stop);
        var health = new ProcessHealth();
        await using var admin = settings.Get(CommonSettings.Admin) is { } url
            ? await AdminServer.StartAsync(new Uri(url), logs, health.Endpoints, stopping.Token).ConfigureAwait(false)
            : null;
        await using var router = await RouterHost.StartAsync(RouterSettings.OptionsOf(settings), health, logs, stopping.Token).ConfigureAwait(false);
        using var metrics = MetricsEndpoint.Add(admin, meter => ReferenceEquals(meter, router.Meter) || meter.Name == ClientMetrics.Name, () => router.Cluster);
        await using var console = ClusterConsole.Add(admin, ConsoleOptions.Of(settings, token, "router", settings.Get(RouterSettings.Nodes)!), logs);
        await Task.Delay(Timeout.Infinite, stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        return ExitCodes.Done;
    }
}
