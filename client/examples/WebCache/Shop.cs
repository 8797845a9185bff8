using KvCluster.Client;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Routing;
using Microsoft.Extensions.Caching.Hybrid;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Examples;

/// <summary>
/// The pages of a shop. Making the page of a product takes long, so it is kept in a cache that all processes share. Each has pages in its memory besides, and
/// drops one as soon as any process removes it.
/// </summary>
internal sealed class Shop(IKvClient store, HybridCache cache)
{
    private long _made;

    /// <summary>How many pages this process has made, because the cache did not have them.</summary>
    public long Made => Interlocked.Read(ref _made);

    /// <summary>Adds the shop and its cache. A client of the cluster must be among the services.</summary>
    public static void AddTo(IServiceCollection services) => services.AddKvClusterHybridCache().AddSingleton<Shop>();

    /// <summary>Adds the pages: <c>GET /products/NAME</c> shows how many were sold, and <c>POST</c> to it sells one.</summary>
    public static void MapTo(IEndpointRouteBuilder pages)
    {
        pages.MapGet("/products/{name}", static async (HttpContext context) => await context.Response.WriteAsync(
            await ShopOf(context).ShowAsync(NameIn(context), context.RequestAborted)));
        pages.MapPost("/products/{name}", static async (HttpContext context) => await context.Response.WriteAsync(
            $"{await ShopOf(context).SellAsync(NameIn(context), context.RequestAborted)}"));
    }

    private ValueTask<string> ShowAsync(string product, CancellationToken cancellationToken) =>
        cache.GetOrCreateAsync(
            PageOf(product),
            async stop =>
            {
                Interlocked.Increment(ref _made);
                var sold = await store.GetAsync(KeyOf(product), cancellationToken: stop);
                return $"{product}: {(sold.Found ? sold.Value.ToInt64() : 0)} sold";
            },
            tags: [PageOf(product)],
            cancellationToken: cancellationToken);

    private async Task<long> SellAsync(string product, CancellationToken cancellationToken)
    {
        // The client counts once, also if the leader dies before it has answered.
        var sold = await store.IncrementAsync(KeyOf(product), cancellationToken: cancellationToken);
        // By its tag, which a page that is being made now has, too.
        await cache.RemoveByTagAsync(PageOf(product), cancellationToken);
        return sold.Number;
    }

    private static Shop ShopOf(HttpContext context) => context.RequestServices.GetRequiredService<Shop>();

    private static string NameIn(HttpContext context) => (string)context.Request.RouteValues["name"]!;

    private static string PageOf(string product) => $"products/{product}";

    private static KvKey KeyOf(string product) => KvKey.Of("shop", "sold", product);
}
