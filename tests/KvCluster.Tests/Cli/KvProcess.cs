using System.Diagnostics;
using System.Text;
using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>`kv` as a shell runs it: the built program, with its exit code and both outputs. Disposing kills it if it still runs.</summary>
internal sealed class KvProcess : IDisposable
{
    // A port on which nothing listens. These tests fail or succeed before the first call.
    private const string NoCluster = "http://127.0.0.1:9";

    private readonly Process _process;
    private readonly Task<string> _output;
    private readonly Task<string> _error;

    private KvProcess(string program, IEnumerable<string> arguments)
    {
        _process = Process.Start(new ProcessStartInfo(program, arguments)
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
            Environment = { ["KV_ENDPOINT"] = NoCluster },
        })!;
        _output = _process.StandardOutput.ReadToEndAsync();
        _error = _process.StandardError.ReadToEndAsync();
    }

    public int Id => _process.Id;

    // The program in its own build directory. The copy beside the tests lacks what the tests take from ASP.NET.
    private static string Kv => Tools.Built("kv", "KvCluster.Cli");

    public static KvProcess Start(params string[] arguments) => new(Kv, arguments);

    /// <summary>
    /// Runs a shell script in which $KV is this program, $NODE `kv-node` and $ROUTER `kv-router`. For redirections, and for bytes that a string
    /// cannot hold.
    /// </summary>
    public static async Task<(int ExitCode, string Output, string Error)> RunInShellAsync(string script)
    {
        using var kv = new KvProcess("/bin/bash", ["-c", $"KV='{Kv}'; NODE='{Path.Combine(AppContext.BaseDirectory, "kv-node")}'; "
            + $"ROUTER='{Path.Combine(AppContext.BaseDirectory, "kv-router")}'; {script}"]);
        kv._process.StandardInput.Close();
        return await kv.WaitForEndAsync();
    }

    /// <summary>Writes to its input, which stays open. Returns when the program has read everything except what a pipe holds.</summary>
    public async Task WriteInputAsync(string text)
    {
        await _process.StandardInput.BaseStream.WriteAsync(Encoding.UTF8.GetBytes(text)).AsTask().WaitAsync(Eventually.Limit);
        await _process.StandardInput.BaseStream.FlushAsync();
    }

    public async Task<(int ExitCode, string Output, string Error)> WaitForEndAsync()
    {
        await _process.WaitForExitAsync().WaitAsync(Eventually.Limit);
        return (_process.ExitCode, await _output, await _error);
    }

    public void Dispose()
    {
        if (!_process.HasExited)
            _process.Kill(entireProcessTree: true);
        _process.Dispose();
    }
}
