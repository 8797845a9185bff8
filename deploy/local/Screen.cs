using KvCluster.ServiceDefaults.Programs;

namespace KvCluster.Local;

/// <summary>Prints where the cluster is and what to type next, once the cluster serves.</summary>
internal static class Screen
{
    public static void Print(TextWriter output, LocalOptions options, DataFolder folder, int sampleRecords)
    {
        var kv = CommandProgram.FindFrom(AppContext.BaseDirectory);
        output.WriteLine($"KvCluster {ProgramVersion.Short}: {Count(folder.Nodes, "node")}, {Count(folder.SplitKeys.Count + 1, "shard")}, "
            + $"{(options.Processes ? "each node a process of its own" : "all in this process")}");
        output.WriteLine();
        output.WriteLine($"  router   {options.RouterAddress}   for kv and any gRPC client");
        for (var node = 1; node <= folder.Nodes; node++)
            output.WriteLine(
                $"  node {node}   {options.NodeAddress(node)}{(options.Processes ? $"   process id in {Path.Combine(folder.Run, $"node-{node}.pid")}" : "")}");
        output.WriteLine($"  console  {options.ConsoleAddress}{(options.Processes ? "   router" : "")}");
        for (var node = 1; options.Processes && node <= folder.Nodes; node++)
            output.WriteLine($"  console  {options.NodeConsoleAddress(node)}   node {node}");
        output.WriteLine($"  token    {options.TokenFile}   file with the token for changes in the console");
        output.WriteLine($"  data     {folder.Path}   kept between runs; logs in {folder.Run}");
        output.WriteLine($"  kv       {kv ?? "not beside this program; install it, or name its path in an alias"}");
        if (sampleRecords > 0)
            output.WriteLine($"  sample   {sampleRecords} records under packages/");
        output.WriteLine();
        output.WriteLine("To try it, in another terminal:");
        output.WriteLine();
        if (kv is not null)
            output.WriteLine($"  alias kv={kv}");
        if (options.TlsFilesOf("client") is { } tls)
        {
            output.WriteLine($"  export KVCLUSTER_TLS_CA={tls.AuthorityFile} KVCLUSTER_TLS_CERT={tls.CertificateFile}");
            output.WriteLine($"  export KVCLUSTER_TLS_KEY={tls.KeyFile}");
        }
        if (options.Tls || options.Port != LocalOptions.PortDefault)
            output.WriteLine($"  export KVCLUSTER_ENDPOINT={options.RouterAddress}");
        output.WriteLine("  kv put greeting hello");
        output.WriteLine("  kv get greeting");
        output.WriteLine(sampleRecords > 0 ? "  kv scan packages/games/ --limit 3" : "  kv scan --limit 3");
        output.WriteLine("  kv status");
        output.WriteLine();
        output.WriteLine("Ctrl-C stops the cluster.");
    }

    private static string Count(int count, string what) => count == 1 ? $"1 {what}" : $"{count} {what}s";
}
