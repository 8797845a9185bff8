using System.Diagnostics;
using System.Globalization;

namespace KvCluster.PublicTests;

/// <summary>A second process with a store of its own, killed at the end.</summary>
internal sealed class OtherProcess : IDisposable
{
    private readonly Process _process;

    private OtherProcess(Process process) => _process = process;

    /// <summary>Its process id.</summary>
    public int Id => _process.Id;

    /// <summary>Starts it and waits until it has opened the store.</summary>
    public static async Task<OtherProcess> StartAsync(string command, string directory)
    {
        var process = Process.Start(
            new ProcessStartInfo("dotnet", ["exec", typeof(Program).Assembly.Location, command, directory]) { RedirectStandardOutput = true })!;
        var other = new OtherProcess(process);
        Assert.Equal("open", await process.StandardOutput.ReadLineAsync());
        return other;
    }

    /// <summary>The next number that it has printed.</summary>
    public async Task<int> NextNumberAsync() =>
        int.Parse(await _process.StandardOutput.ReadLineAsync() ?? throw new InvalidOperationException("The process has ended."), CultureInfo.InvariantCulture);

    /// <summary>Kills it, as with kill -9, and returns the numbers that it had printed until then.</summary>
    public async Task<List<int>> KillAsync()
    {
        _process.Kill();
        var numbers = new List<int>();
        // A line that was cut off has no end.
        var text = await _process.StandardOutput.ReadToEndAsync();
        foreach (var line in text[..(text.LastIndexOf('\n') + 1)].Split('\n', StringSplitOptions.RemoveEmptyEntries))
            numbers.Add(int.Parse(line, CultureInfo.InvariantCulture));
        await _process.WaitForExitAsync();
        return numbers;
    }

    public void Dispose()
    {
        if (!_process.HasExited)
            _process.Kill();
        _process.WaitForExit();
        _process.Dispose();
    }
}
