// A newsletter that one of several processes writes, with a setting that can be changed meanwhile: see README.md beside this project.
using System.Globalization;
using KvCluster.Client;
using KvCluster.Examples;
using Microsoft.Extensions.Configuration;

if (args is not [var candidate, var count] || !long.TryParse(count, CultureInfo.InvariantCulture, out var letters))
{
    Console.Error.WriteLine("Usage: Settings CANDIDATE LETTERS");
    return 2;
}
await using var store = new KvClient(Environment.GetEnvironmentVariable("KVCLUSTER_ENDPOINT") ?? "http://127.0.0.1:7400");
var settings = new ConfigurationBuilder().AddKvCluster(options => (options.Client, options.Prefix) = (store, Newsletter.SettingsPrefix)).Build();
using (settings as IDisposable)
{
    try
    {
        var newsletter = new Newsletter(store, settings);
        await newsletter.RunAsync(candidate, letters, CancellationToken.None);
        Console.WriteLine($"{await newsletter.CountAsync()} letters are written");
        return 0;
    }
    catch (KvException failure)
    {
        Console.Error.WriteLine(failure.Message);
        return 1;
    }
}
